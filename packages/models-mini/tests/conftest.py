"""The shipped model, loaded once, and a way to ask it without a server."""

import pytest

from models_mini.checkpoint import open_checkpoint
from models_mini.executor import MiniExecutor
from models_mini.processor import MiniProcessor
from system1_core import Question, Request


class Mini:
    """Processor and executor, one request at a time."""

    def __init__(self, threads=1, cache_bytes=2**20):
        checkpoint = open_checkpoint()
        self.processor = MiniProcessor(checkpoint, cache_bytes)
        self.executor = MiniExecutor(checkpoint, threads)

    def prepare(self, state, questions):
        asked = tuple(Question(id=id, **fields) for id, fields in questions.items())
        return self.processor.prepare(Request(state=state, questions=asked))

    def result(self, state, questions):
        prepared = self.prepare(state, questions)
        return self.processor.finish(prepared.context, self.executor.execute(prepared.prompts))

    def ask(self, state, **question):
        """One answer: a mapping for a choice, a list for a score, P(yes) for a noul."""
        return shown(self.result(state, {"q": question}).answers[0])


def shown(answer):
    return answer.probability if hasattr(answer, "probability") else answer.probabilities


@pytest.fixture(scope="session")
def shared_mini():
    return Mini()


@pytest.fixture
def mini(shared_mini):
    """The shared model with an empty cache."""
    shared_mini.processor.cache = type(shared_mini.processor.cache)(2**20)
    return shared_mini


@pytest.fixture
def new_mini():
    return Mini
