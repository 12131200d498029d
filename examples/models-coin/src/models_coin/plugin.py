"""The hook: what this package adds to system1. Imports nothing heavy."""

from system1_core import Load, ModelFamily, hookimpl
from system1_core.executor import Executor
from system1_core.processor import Processor


def load_processor(load: Load) -> Processor:
    from models_coin.processor import CoinProcessor

    return CoinProcessor()


def load_executor(load: Load) -> Executor:
    from models_coin.executor import CoinExecutor

    return CoinExecutor()


@hookimpl
def system1_register_models() -> list[ModelFamily]:
    return [
        ModelFamily(
            name="coin",
            description="answers every question with its first option (a template, not a model)",
            load_processor=load_processor,
            load_executor=load_executor,
            example={
                "state": "The coin lies on the table.",
                "questions": {
                    "side": {
                        "type": "choice",
                        "instructions": "Which side is up?",
                        "criteria": {"heads": None, "tails": None},
                    },
                    "worn": {"type": "score", "criteria": ["new", "used", "worn"]},
                    "fair": {"type": "noul", "instructions": "Is it a fair coin?"},
                },
            },
        )
    ]
