"""Rows for training say of every token what it may see, as the runtime's prompts do."""

import random
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from models_mini.executor import make_inputs
from models_mini.prompt import MiniPrompt
from models_mini.readout import Readout

TRAINING = Path(__file__).parent.parent / "training"
TYPES = ("choice", "score", "noul")
WAYS = ("pooled", "prefix0", "prefix4", "joint", "prefix0-single", "joint-single")


@pytest.fixture(scope="module")
def rows():
    sys.path.insert(0, str(TRAINING))
    try:
        import rows
    finally:
        sys.path.remove(str(TRAINING))
    return rows


@dataclass
class Item:
    type: str
    state: str
    candidates: tuple
    asked: str
    target: int


def ids_of(text):
    return [101, *map(ord, text), 102]


def items(count=12):
    rng = random.Random(0)
    word = lambda: "x" * rng.randint(1, 20)  # noqa: E731
    made = []
    for index in range(count):
        type = TYPES[index % 3]
        candidates = [word() for _ in range(2 if type == "noul" else rng.randint(2, 5))]
        made.append(Item(type, word() * 3, (*candidates,), word(), index % 2))
    return made


@pytest.fixture(params=WAYS)
def batch(rows, request):
    single = request.param.endswith("-single")
    readouts = dict.fromkeys(TYPES, "pooled" if single else request.param)
    return rows.make_batch(items(), ids_of, readouts | {"noul": request.param}, TYPES)


def test_no_token_sees_padding(rows, batch):
    for chunk in batch.chunks:
        real = chunk.segments != rows.PADDING
        assert not (chunk.parents[real] == rows.PADDING).any()
        assert chunk.lengths.sum() == real.sum()


def test_every_item_has_a_place_for_each_candidate(batch):
    for index, item in enumerate(items()):
        assert batch.present[index].sum() == len(item.candidates)
        places = batch.places[index][batch.present[index]]
        assert len(set(places)) == (1 if batch.is_single[index] else len(item.candidates))
    assert batch.targets.tolist() == [item.target for item in items()]


@pytest.mark.parametrize("name", ["prefix0", "prefix3", "joint"])
def test_training_and_runtime_lay_a_pair_out_alike(rows, name):
    item = Item("noul", "abc", ("de", "f"), "", 0)
    chunk = rows.make_batch([item], ids_of, {"noul": name}, TYPES, chunks=1).chunks[0]
    readout = Readout.parse(name)
    beside = [(ids_of(text), readout) for text in item.candidates]
    if readout.is_joint:
        beside = beside[:1]
    inputs = make_inputs([MiniPrompt.of_pair(ids_of("abc"), beside)])
    row = np.argmax(chunk.lengths.sum(1))
    pairs = {
        "token_ids": chunk.token_ids, "kind_ids": chunk.kinds, "position_ids": chunk.positions,
        "segment_ids": chunk.segments, "parent_ids": chunk.parents,
    }  # fmt: skip
    for key, array in pairs.items():
        assert array[row].tolist() == inputs[key].tolist(), key
    sees = inputs["parent_ids"] >= 0
    assert chunk.layers[row][sees].tolist() == inputs["layers"][sees].tolist()
