"""What a pass reads leaves in few steps: one copy of indices at most, and one copy back."""

import random
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

import models_qwen3_5.readouts as readouts_module
from models_qwen3_5.backbone import Backbone, Reads, SequencePrompt
from models_qwen3_5.executor import BackboneExecutor
from models_qwen3_5.readouts import MAX_LIST_TOKENS, MAX_LISTS, HeadRows

STEM = random.Random(0).choices(range(430), k=50)


def lettered(seed, letters, length=6):
    token_ids = [*STEM, *random.Random(seed).choices(range(430), k=length)]
    last = len(token_ids) - 1
    return SequencePrompt(token_ids, reads=Reads(logits=(last,), logit_ids=tuple(letters)))


def hidden_of(seed, length):
    token_ids = [*STEM, *random.Random(seed).choices(range(430), k=length)]
    last = len(token_ids) - 1
    return SequencePrompt(token_ids, reads=Reads(hidden=(last, 3), logprobs=((last, 7), (2, 9))))


@pytest.fixture
def fresh(backbone):
    """The backbone's weights, nothing kept of its head."""
    return Backbone(backbone.config, backbone.text, backbone.vision)


@pytest.fixture
def sent(monkeypatch):
    """How many places each copy to the device holds."""
    counts, real = [], readouts_module.on_device

    def counted(places, device):
        counts.append(len(places))
        return real(places, device)

    monkeypatch.setattr(readouts_module, "on_device", counted)
    return counts


@pytest.fixture
def copied(monkeypatch):
    """How often something was copied to the host."""
    counts = []
    for name in ("tolist", "cpu", "item"):
        real = getattr(torch.Tensor, name)

        def counted(self, *given, real=real, name=name):
            counts.append(name)
            return real(self, *given)

        monkeypatch.setattr(torch.Tensor, name, counted)
    return counts


def test_a_lone_prompts_letters_need_no_index_once_they_are_known(fresh, sent):
    executor = BackboneExecutor(fresh)
    first = executor.execute([lettered(1, (32, 40, 33))])
    assert sent == [3]
    assert executor.execute([lettered(1, (32, 40, 33))]) == first
    assert sent == [3]


def test_all_indices_of_a_pass_go_in_one_copy(fresh, sent):
    prompts = [hidden_of(seed, 3 + seed) for seed in range(5)]
    prompts += [lettered(seed, (32, 40 + seed)) for seed in range(4)]
    fresh.forward(prompts)
    assert len(sent) == 1


def test_outputs_leave_in_one_copy(fresh, copied):
    prompts = [lettered(seed, (32, *range(40, 41 + seed % 3))) for seed in range(8)]
    prompts.append(lettered(9, (50, 51)))
    executor = BackboneExecutor(fresh)
    readouts = fresh.read(prompts)
    del copied[:]
    outputs = executor.read_out(prompts, readouts)
    assert copied == ["tolist"]
    assert [len(output) for output in outputs] == [len(p.reads.logit_ids) for p in prompts]


def test_lists_of_letters_that_begin_alike_are_one_product(fresh):
    shapes = []

    def linear(x, weight):
        shapes.append((len(x), len(weight)))
        return torch.nn.functional.linear(x, weight)

    fresh._head_rows.ops = replace(fresh.ops, linear=linear)
    prompts = [lettered(seed, (32, 33, 34, 35)[: 2 + seed % 3]) for seed in range(6)]
    readouts = fresh.read(prompts)
    found = readouts.logits_lists()
    assert shapes == [(6, 4)]
    for one, readout, prompt in zip(found, readouts, prompts, strict=True):
        assert one == readout.logits.tolist()
        (alone,) = fresh.forward([prompt])
        assert readout.logits.shape == alone.logits.shape
        torch.testing.assert_close(readout.logits, alone.logits, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    "places", [[], [2], [1, 2, 3], [0, 2, 1, 3], [3, 2, 1], [1, 1, 2], [0, 0, 2], [1, 3]], ids=str
)
def test_rows_are_taken_in_the_order_asked_for(sent, places):
    rows = torch.arange(8.0).view(4, 2)
    index = readouts_module._Index({"x": places, "y": [3, 0]}, rows.device)
    found = readouts_module.take(rows, index.places("x")).tolist()
    assert found == [[2 * place, 2 * place + 1] for place in places]
    assert readouts_module.take(rows, index.places("y")).tolist() == [[6, 7], [0, 1]]
    assert len(sent) == 1


def test_what_was_read_stays_when_a_graph_overwrites_its_rows(fresh):
    last = SequencePrompt(STEM, reads=Reads(hidden=(len(STEM) - 1,)))
    for prompt in (lettered(1, (32, 33)), hidden_of(2, 4), last):
        readouts = fresh.read([prompt])
        (found,) = list(readouts)
        before = replace(
            found,
            hidden=found.hidden.clone(),
            logits=found.logits.clone(),
            logprobs=found.logprobs.clone(),
        )
        with torch.inference_mode():
            readouts.rows.fill_(float("nan"))
        for name in ("hidden", "logits", "logprobs"):
            assert torch.equal(getattr(found, name), getattr(before, name))


def test_more_lists_than_are_kept_are_read_in_one_batch(fresh):
    prompts = [lettered(seed, (32, 40 + seed)) for seed in range(2 * MAX_LISTS)]
    for _ in range(2):
        outputs = BackboneExecutor(fresh).execute(prompts)
        for prompt, output in list(zip(prompts, outputs, strict=True))[::9]:
            (alone,) = fresh.forward([prompt])
            torch.testing.assert_close(torch.tensor([output]), alone.logits, atol=1e-4, rtol=0)


def test_rows_of_the_head_that_are_kept_are_bounded(backbone):
    head = torch.randn(100, 4)
    rows = HeadRows(SimpleNamespace(head=head), backbone.ops)
    for number in range(2 * MAX_LISTS):
        rows.keep((number, 3), torch.tensor([number, 3]))
        assert torch.equal(rows.kept((0, 3)), head[[0, 3]])
    assert len(rows._kept) == MAX_LISTS
    assert rows.kept((1, 3)) is None
    rows.keep(tuple(range(MAX_LIST_TOKENS + 1)), slice(0, MAX_LIST_TOKENS + 1))
    assert rows.kept(tuple(range(MAX_LIST_TOKENS + 1))) is None


def test_a_closed_backbone_keeps_no_rows(fresh):
    BackboneExecutor(fresh).execute([lettered(1, (32, 33))])
    assert fresh._head_rows._kept
    fresh.close()
    assert not fresh._head_rows._kept
