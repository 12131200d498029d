"""Writes the answers of the shipped model into `tests/fixtures/golden.json`: `python golden.py`."""

import json
from pathlib import Path

from models_mini.checkpoint import open_checkpoint
from models_mini.executor import MiniExecutor
from models_mini.processor import MiniProcessor
from system1_core import Question, Request

PATH = Path(__file__).parent.parent / "tests" / "fixtures" / "golden.json"


def answer(processor, executor, body):
    """The protocol's answer objects for one request body."""
    questions = tuple(Question(id=id, **fields) for id, fields in body["questions"].items())
    prepared = processor.prepare(Request(state=body["state"], questions=questions))
    outputs = executor.execute(prepared.prompts)
    result = processor.finish(prepared.context, outputs)
    pairs = zip(questions, result.answers, strict=True)
    return {question.id: one.as_json(question) for question, one in pairs}


def main():
    cases = json.loads(PATH.read_text(encoding="utf-8"))
    processor = MiniProcessor(open_checkpoint(), 0)
    executor = MiniExecutor(open_checkpoint(), 1)
    for case in cases:
        case["answers"] = answer(processor, executor, case["request"])
    PATH.write_text(json.dumps(cases, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
