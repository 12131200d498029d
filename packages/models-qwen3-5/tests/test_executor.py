"""The executor that families share, and what a load's settings do to it."""

import pytest
import torch

from models_qwen3_5.backbone import Reads, SequencePrompt
from models_qwen3_5.executor import BackboneExecutor, open_backbone
from models_qwen3_5.ops import Ops, ops_of
from system1_core.backend import Backend
from system1_core.family import Load
from system1_torch.ops.silu_mul import silu_mul

READS = Reads(logits=(2,), logit_ids=(5, 6, 7))


class Replacing(Backend):
    """Offers one operation of ours and one of another family's."""

    framework = "torch"

    def __init__(self, op):
        self._ops = {"silu_mul": op, "of_another_family": op}

    @property
    def ops(self):
        return self._ops


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    monkeypatch.setattr("models_qwen3_5.executor.set_cpu_threads", lambda: 1)


def test_a_backend_replaces_what_it_offers_and_no_more():
    def fast(gate_up):
        return silu_mul(gate_up)

    ops = ops_of(Replacing(fast))
    assert ops.silu_mul is fast
    assert ops.rms_norm is Ops().rms_norm


def test_a_replaced_operation_is_the_one_that_runs(base):
    calls = []

    def counted(gate_up):
        calls.append(gate_up.shape)
        return silu_mul(gate_up)

    backbone = open_backbone(Load(family="qwen3-5", backend=Replacing(counted)), base)
    backbone.forward([SequencePrompt([1, 2, 3], reads=READS)])
    assert len(calls) == 8


def test_the_dtype_of_the_load_is_the_models(base):
    backbone = open_backbone(Load(family="qwen3-5", dtype="bfloat16"), base)
    assert backbone.dtype == torch.bfloat16


def test_deterministic_serving_runs_each_prompt_alone(base):
    backbone = open_backbone(Load(family="qwen3-5", deterministic=True), base)
    assert backbone.planner.cut_multiple == 64
    assert BackboneExecutor(backbone, is_deterministic=True).max_batch_prompts == 1


def test_outputs_are_the_logits_of_each_prompt_in_order(backbone):
    executor = BackboneExecutor(backbone)
    prompts = [SequencePrompt([1, 2, token], reads=READS) for token in (3, 4)]
    outputs = executor.execute(prompts)
    assert [len(output) for output in outputs] == [3, 3]
    assert outputs[0] != outputs[1]
    alone = executor.execute(prompts[1:])[0]
    assert max(abs(a - b) for a, b in zip(outputs[1], alone, strict=True)) < 1e-5


def test_warm_up_runs(backbone):
    BackboneExecutor(backbone).warmup()
