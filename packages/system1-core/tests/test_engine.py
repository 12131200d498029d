"""One engine: rounds, errors, threads, states."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from fakes import EXAMPLE, FirstOption, Zeros, family, plugins, settle

from system1_core import (
    ChoiceAnswer,
    DependencyFailed,
    DeviceLost,
    Executor,
    Image,
    NoulAnswer,
    Prepared,
    Prompt,
    Question,
    Request,
    Result,
)
from system1_core.config import ServeConfig
from system1_core.engine import Engine
from system1_core.engines import build
from system1_core.errors import (
    DeadlineExceeded,
    InferenceFailed,
    InvalidRequest,
    ModelUnavailable,
    TooLarge,
)
from system1_core.metrics import Metrics


def request(*types: str, **changes: Any) -> Request:
    criteria = {"choice": {"a": None, "b": None}, "score": ["low", "high"], "noul": None}
    questions = tuple(
        Question(id=f"q{i}", type=type, instructions="?", criteria=criteria[type])
        for i, type in enumerate(types or ("choice",))
    )
    return Request(state="state", questions=questions, **changes)


async def started(executor: Executor | None = None, **changes: Any) -> Engine:
    engines = build(ServeConfig(), plugins(family(executor=executor, **changes)), Metrics())
    await engines.start()
    return engines.first


async def test_it_answers_every_question_in_order():
    engine = await started()
    result = await engine.answer(request("choice", "score", "noul"))
    assert [type(answer).__name__ for answer in result.answers] == [
        "ChoiceAnswer",
        "ScoreAnswer",
        "NoulAnswer",
    ]
    assert result.input_tokens == 3 * len("state")
    await engine.close()


async def test_one_thread_loads_warms_runs_and_closes():
    executor = Zeros()
    engine = await started(executor)
    await engine.answer(request())
    await engine.close()
    assert executor.closed
    assert len(executor.threads) == 1


class Preparing(Zeros):
    """Has idle work until it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.worked = threading.Event()
        self.was_warm_first = False

    def idle(self) -> bool:
        assert not self.closed
        if not self.worked.is_set():
            self.was_warm_first = bool(self.batches)
        self.threads.add(threading.get_ident())
        self.worked.set()
        return True


async def test_idle_work_begins_after_the_example_and_ends_with_the_engine(caplog):
    executor = Preparing()
    engine = await started(executor)
    assert await asyncio.to_thread(executor.worked.wait, 10)
    assert executor.was_warm_first
    await engine.answer(request())
    await engine.close()
    await asyncio.sleep(0.2)
    assert len(executor.threads) == 1
    assert "idle work failed" not in caplog.text


async def test_starting_sends_the_example_through_the_full_path():
    executor = Zeros()
    engine = await started(executor)
    assert executor.batches == [1]
    assert engine.state == "ok"
    await engine.close()


async def test_a_failure_to_load_is_kept_as_the_reason():
    def fail(load: Any) -> Executor:
        raise OSError("no such device")

    engines = build(ServeConfig(), plugins(family(load_executor=fail)), Metrics())
    with pytest.raises(OSError, match="no such device"):
        await engines.start()
    assert engines.state == "failed"
    assert engines.reason == "zeros: no such device"


async def test_a_failure_to_warm_up_closes_the_executor():
    executor = Zeros()
    executor.error = ValueError("broken")
    engines = build(ServeConfig(), plugins(family(executor=executor)), Metrics())
    with pytest.raises(InferenceFailed):
        await engines.start()
    assert executor.closed
    await engines.close()


async def test_names_found_while_loading_are_answered_to():
    class Found(FirstOption):
        names = ("head-1",)

    found = plugins(family(load_processor=lambda load: Found()))
    engines = build(ServeConfig(), found, Metrics())
    await engines.start()
    assert engines.resolve("head-1") is engines.first
    assert "head-1" in [entry["name"] for entry in engines.models()["models"]]
    await engines.close()


class TwoRounds(FirstOption):
    def finish(self, context: Any, outputs: Sequence[Any]) -> Any:
        if isinstance(context, tuple):
            return Prepared([Prompt([1, 2])], list(context))
        return [ChoiceAnswer(probabilities={"a": 1.0, "b": 0.0})]


async def test_a_processor_may_ask_for_another_round():
    engine = await started(load_processor=lambda load: TwoRounds(), example=None)
    result = await engine.answer(request())
    assert result.input_tokens == len("state") + 2
    await engine.close()


class Fixed(FirstOption):
    def __init__(self, result: Any) -> None:
        self.result = result

    def finish(self, context: Any, outputs: Sequence[Any]) -> Any:
        return self.result


@pytest.mark.parametrize(
    "answers",
    [
        [],
        [NoulAnswer(probability=0.5)],
        [ChoiceAnswer(probabilities={"b": 1.0, "a": 0.0})],
        [ChoiceAnswer(probabilities={"a": 1.0})],
        [ChoiceAnswer(probabilities={"a": float("nan"), "b": 0.5})],
        [ChoiceAnswer(probabilities={"a": 0.5, "b": 0.4})],
    ],
    ids=["none", "type", "order", "keys", "nan", "sum"],
)
async def test_a_wrong_answer_never_leaves(answers):
    engine = await started(load_processor=lambda load: Fixed(answers), example=None)
    with pytest.raises(InferenceFailed, match="^inference failed$"):
        await engine.answer(request())
    await engine.close()


async def test_a_result_may_count_its_own_tokens():
    answers = [ChoiceAnswer(probabilities={"a": 1.0, "b": 0.0})]
    result = Result(answers=answers, input_tokens=7, extra={"x_more": 1})
    engine = await started(load_processor=lambda load: Fixed(result), example=None)
    given = await engine.answer(request())
    assert given.input_tokens == 7
    assert given.extra["x_more"] == 1
    await engine.close()


async def test_an_image_to_a_text_model_is_refused():
    engine = await started()
    image = Image(placeholder="pic", data=b"", format="png")
    with pytest.raises(InvalidRequest, match="reads text only"):
        await engine.answer(request(images={"pic": image}))
    await engine.close()


async def test_a_type_the_family_cannot_answer_is_refused():
    engine = await started(question_types=("choice",), example=None)
    with pytest.raises(InvalidRequest, match="answers choice only") as caught:
        await engine.answer(request("noul"))
    assert caught.value.problems[0].loc == ("body", "questions", "q0", "noul")
    await engine.close()


async def test_an_exception_says_nothing_of_the_inside():
    executor = Zeros()
    engine = await started(executor)
    executor.error = ValueError("secret")
    with pytest.raises(InferenceFailed, match="^inference failed$"):
        await engine.answer(request())
    executor.error = None
    assert await engine.answer(request())
    await engine.close()


async def test_a_failed_dependency_is_told():
    executor = Zeros()
    engine = await started(executor)
    executor.error = DependencyFailed("embedder unreachable")
    with pytest.raises(DependencyFailed, match="embedder unreachable"):
        await engine.answer(request())
    await engine.close()


async def test_a_lost_device_closes_the_executor_and_fails_the_engine():
    executor = Zeros()
    engine = await started(executor)
    executor.error = DeviceLost("CUDA error 719")
    with pytest.raises(ModelUnavailable):
        await engine.answer(request())
    assert executor.closed
    assert engine.state == "failed"
    assert "719" in engine.reason
    with pytest.raises(ModelUnavailable):
        await engine.answer(request())


class Io(Executor):
    max_concurrent_batches = 8

    def __init__(self) -> None:
        self.running = self.most = 0

    async def execute(self, prompts: Sequence[Prompt]) -> list[int]:
        self.running += 1
        self.most = max(self.most, self.running)
        await settle(3)
        self.running -= 1
        return [0 for _ in prompts]


async def test_requests_to_an_async_executor_overlap():
    executor = Io()
    engine = await started(executor)
    await asyncio.gather(*(engine.answer(request()) for _ in range(5)))
    assert executor.most > 1
    await engine.close()


async def test_a_batch_of_states_is_checked_whole_before_anything_runs():
    executor = Zeros()
    engine = await started(executor, question_types=("choice",), example=None)
    with pytest.raises(InvalidRequest):
        await engine.answer_batch([request(), request("noul")])
    assert executor.batches == []
    results = await engine.answer_batch([request(), request()])
    assert len(results) == 2
    await engine.close()


async def test_a_large_request_is_prepared_off_the_event_loop():
    threads: list[str] = []

    class Spy(FirstOption):
        def prepare(self, request: Request) -> Prepared:
            import threading

            threads.append(threading.current_thread().name)
            return super().prepare(request)

    engine = await started(load_processor=lambda load: Spy(), example=None)
    await engine.answer(request(num_bytes=10))
    await engine.answer(request(num_bytes=1_000_000))
    assert threads[0] == "MainThread"
    assert threads[1] != "MainThread"
    await engine.close()


async def test_a_request_over_the_token_limit_is_refused_before_it_runs():
    executor = Zeros()
    executor.max_request_tokens = 9
    engine = await started(executor)
    with pytest.raises(TooLarge, match="takes 10 tokens, limit 9"):
        await engine.answer(request("noul", "noul"))
    assert await engine.answer(request("noul"))
    await engine.close()


async def test_the_deadline_covers_the_preparation_of_a_large_request():
    class Slow(FirstOption):
        def prepare(self, request: Request) -> Prepared:
            import time

            time.sleep(0.3)
            return super().prepare(request)

    engine = await started(load_processor=lambda load: Slow(), example=None)
    deadline = asyncio.get_running_loop().time() + 0.05
    with pytest.raises(DeadlineExceeded):
        await engine.answer(request(num_bytes=1_000_000), deadline)
    await engine.close()


def test_the_example_of_the_fakes_is_a_request():
    assert set(EXAMPLE) == {"state", "questions"}
