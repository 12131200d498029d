"""An answer must not depend on what runs beside it."""

import pytest
from conftest import FIXTURES, SINGLE_CASES

from models_laya.executor import action_features, pack
from models_laya.load import load_executor
from models_laya.tokens import LayaPrompt
from system1_core.answers import softmax
from system1_core.family import Load

PART = {"checkpoint": "english", "checkpoint-multilingual": "multilingual"}
PROMPTS = [
    LayaPrompt(
        tuple(trace["input_ids"]),
        batch_key=PART[case["checkpoint"]],
        markers=tuple(trace["marker_positions"]),
        type_id=trace["qtype"],
    )
    for case in SINGLE_CASES
    for trace in case["trace"]["questions"].values()
]


def _of(name):
    return [prompt for prompt in PROMPTS if prompt.batch_key == name]


@pytest.mark.parametrize("name", ["english", "multilingual"])
def test_probabilities_are_the_same_alone_and_in_one_batch(served, name):
    prompts = _of(name)
    together = served.executor.execute(prompts)
    for prompt, reading in zip(prompts, together, strict=True):
        (alone,) = served.executor.execute([prompt])
        assert softmax(reading.logits) == pytest.approx(softmax(alone.logits), abs=1e-5)
        assert reading.act_probability == pytest.approx(alone.act_probability, abs=1e-5)


def test_order_in_the_batch_changes_nothing(served):
    prompts = _of("english")[:12]
    forward = served.executor.execute(prompts)
    backward = served.executor.execute(prompts[::-1])[::-1]
    for one, other in zip(forward, backward, strict=True):
        assert softmax(one.logits) == pytest.approx(softmax(other.logits), abs=1e-5)


def test_deterministic_runs_every_prompt_alone():
    load = Load(
        family="laya-english",
        folder=FIXTURES / "checkpoint",
        deterministic=True,
        options={"threads": 1},
    )
    assert load_executor(load).max_batch_prompts == 1


def test_bfloat16_stays_near_float32(served):
    load = Load(
        family="laya-english",
        folder=FIXTURES / "checkpoint",
        dtype="bfloat16",
        options={"threads": 1},
    )
    narrow = load_executor(load)
    prompts = _of("english")
    for wide, near in zip(served.executor.execute(prompts), narrow.execute(prompts), strict=True):
        # The original's own bfloat16 moved probabilities by up to 0.022 on this checkpoint.
        assert softmax(near.logits, 1.5) == pytest.approx(softmax(wide.logits, 1.5), abs=0.04)


def test_packing_lays_prompts_end_to_end_without_padding(served):
    prompts = [
        LayaPrompt((5, 6, 7), batch_key="english", markers=(1,), type_id=2),
        LayaPrompt((8, 9), batch_key="english", markers=(0, 1), type_id=1),
    ]
    batch = pack(prompts, served.executor._models["english"].device)
    assert batch.token_ids.tolist() == [5, 6, 7, 8, 9]
    assert batch.positions.tolist() == [0, 1, 2, 0, 1]
    assert batch.type_ids.tolist() == [2, 2, 2, 1, 1]
    assert batch.cu_seqlens.tolist() == [0, 3, 5]
    assert batch.read_rows.tolist() == [0, 1, 3, 3, 4]
    assert batch.cu_reads.tolist() == [0, 2, 5]


def test_a_single_option_has_no_runner_up():
    top, margin, entropy, count = action_features([3.0])
    assert (top, margin, entropy) == (1.0, 1.0, 0.0)
    assert count == pytest.approx(2 / 255)
