"""Head files: read alike in both formats, and refused where they are not what they should be."""

import contextlib
import json
import pickle
import random
import warnings

import pytest
import torch
from conftest import HEADS
from safetensors import safe_open
from safetensors.torch import save_file

from models_clm.head_file import load_head
from system1_core import CheckpointError

NAMES = ("clm_tiny", "clm_alt", "clm_plain")


def parts_of(name="clm_tiny"):
    with safe_open(HEADS / f"{name}.safetensors", "pt") as file:
        return {key: file.get_tensor(key) for key in file.keys()}, dict(file.metadata())  # noqa: SIM118


def save(tmp_path, tensors, metadata):
    file = tmp_path / "head.safetensors"
    save_file(tensors, file, metadata)
    return file


def save_pt(tmp_path, **changes):
    content = torch.load(HEADS / "clm_tiny.pt", weights_only=True) | changes
    file = tmp_path / "head.pt"
    torch.save({name: value for name, value in content.items() if value is not ...}, file)
    return file


@pytest.mark.parametrize("name", NAMES)
def test_both_formats_hold_the_same_head(name):
    published, converted = (load_head(HEADS / f"{name}.{end}") for end in ("pt", "safetensors"))
    assert published.scale == converted.scale
    for one, other in zip(
        published.network.state_dict().values(),
        converted.network.state_dict().values(),
        strict=True,
    ):
        assert torch.equal(one, other)


@pytest.mark.parametrize(("name", "scale"), [("clm_tiny", 9.0), ("clm_alt", 100.0)])
def test_scale_is_the_exponential_capped_at_100(name, scale):
    assert load_head(HEADS / f"{name}.pt").scale == scale


def test_projection_dim_outside_cfg_wins():
    content = torch.load(HEADS / "clm_tiny.pt", weights_only=True)
    assert "projection_dim" not in content["cfg"]
    assert load_head(HEADS / "clm_tiny.pt").network.state_head.out.out_features == 32


@pytest.mark.parametrize("change", ["missing", "extra", "shape"])
def test_tensors_must_match_exactly(tmp_path, change):
    tensors, metadata = parts_of()
    name = "state_head.hidden.0.bias"
    if change == "missing":
        del tensors[name]
    elif change == "extra":
        name = "state_head.hidden.1.bias"
        tensors[name] = torch.zeros(48)
    else:
        tensors[name] = torch.zeros(47)
    with pytest.raises(CheckpointError, match=name.replace(".", r"\.")) as caught:
        load_head(save(tmp_path, tensors, metadata))
    assert "head.safetensors" in str(caught.value)
    assert "expected" in str(caught.value)


def test_wrong_dtype_is_refused(tmp_path):
    tensors, metadata = parts_of()
    tensors["action_head.out.bias"] = tensors["action_head.out.bias"].half()
    with pytest.raises(
        CheckpointError, match="found torch.float16, expected torch.float32; convert"
    ):
        load_head(save(tmp_path, tensors, metadata))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_values_that_are_not_finite_are_refused(tmp_path, bad):
    tensors, metadata = parts_of()
    tensors["action_head.out.bias"][3] = bad
    with pytest.raises(CheckpointError, match=r"action_head\.out\.bias.*not finite"):
        load_head(save(tmp_path, tensors, metadata))


def test_values_that_are_not_finite_are_refused_in_pt(tmp_path):
    broken = torch.load(HEADS / "clm_tiny.pt", weights_only=True)["state_head"]
    broken["inp.bias"][0] = float("nan")
    with pytest.raises(CheckpointError, match=r"state_head\.inp\.bias.*not finite.*fetch"):
        load_head(save_pt(tmp_path, state_head=broken))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "pt"}, "metadata format is 'pt', expected 'clm-heads'"),
        ({"cfg": "{"}, "convert the head again"),
        ({"cfg": "[]"}, "cfg is a list, expected an object"),
        ({"cfg": '{"width": 48}'}, "cfg lacks depth"),
        ({"logit_scale": "nan"}, "logit_scale is nan, expected a finite number"),
        ({"hidden_size": "65"}, "hidden_size is 65, but cfg has 64"),
    ],
)
def test_metadata_must_be_a_clm_head(tmp_path, changes, message):
    tensors, metadata = parts_of()
    with pytest.raises(CheckpointError, match=message):
        load_head(save(tmp_path, tensors, metadata | changes))


@pytest.mark.parametrize(
    "change",
    [
        {"width": 10**9},
        {"width": True},
        {"width": "48"},
        {"depth": 1},
        {"depth": 10**6},
        {"activation": "tanh"},
        {"layernorm": "yes"},
    ],
    ids=str,
)
def test_config_out_of_range_is_refused_before_any_memory_is_taken(tmp_path, change):
    cfg = {"width": 48, "depth": 3, "layernorm": True, "hidden_size": 64} | change
    (name,) = change
    with pytest.raises(CheckpointError, match=rf"cfg\.{name} is .*expected"):
        load_head(save_pt(tmp_path, cfg=cfg))


@pytest.mark.parametrize("part", ["state_head", "action_head", "logit_scale", "cfg"])
def test_pt_must_hold_every_part(tmp_path, part):
    with pytest.raises(CheckpointError, match=f"lacks {part}"):
        load_head(save_pt(tmp_path, **{part: ...}))


def test_pt_part_that_is_no_state_dict_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="state_head is a list, expected tensors"):
        load_head(save_pt(tmp_path, state_head=[1]))


@pytest.mark.parametrize(
    "weight", [[1.0], torch.zeros(48).to_sparse(), torch.zeros(48, device="meta")], ids=type
)
def test_pt_entry_that_is_no_plain_tensor_is_refused(tmp_path, weight):
    part = torch.load(HEADS / "clm_tiny.pt", weights_only=True)["state_head"]
    with pytest.raises(CheckpointError, match=r"state_head\.inp\.bias is a .*plain tensor"):
        load_head(save_pt(tmp_path, state_head={**part, "inp.bias": weight}))


@pytest.mark.parametrize("seed", range(40))
def test_damaged_pt_is_refused_or_read_and_nothing_else(tmp_path, seed):
    chance = random.Random(seed)
    content = bytearray((HEADS / "clm_plain.pt").read_bytes())
    for _ in range(20):
        content[chance.randrange(1500)] = chance.randrange(256)
    file = tmp_path / "head.pt"
    file.write_bytes(content)
    with contextlib.suppress(CheckpointError), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of what it then refuses
        load_head(file)


def test_pickled_code_never_runs(tmp_path):
    mark = tmp_path / "ran"

    class Evil:
        def __reduce__(self):
            return (open, (str(mark), "w"))

    file = tmp_path / "head.pt"
    file.write_bytes(pickle.dumps({"cfg": Evil()}, protocol=2))
    with pytest.raises(CheckpointError, match="head.pt"):
        load_head(file)
    torch.save({"cfg": Evil()}, file)
    with pytest.raises(CheckpointError, match="pickled code could run"):
        load_head(file)
    assert not mark.exists()


@pytest.mark.parametrize("end", ["pt", "safetensors"])
def test_truncated_file_is_refused(tmp_path, end):
    whole = (HEADS / f"clm_tiny.{end}").read_bytes()
    file = tmp_path / f"head.{end}"
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match=f"head.{end}.*fetch"):
        load_head(file)


def test_published_name_with_another_content_is_refused(tmp_path):
    file = tmp_path / "CLM_v0.1-8B.pt"
    file.write_bytes((HEADS / "clm_tiny.pt").read_bytes())
    with pytest.raises(CheckpointError, match=r"SHA-256 is [0-9a-f]{64}, expected b2b4a8c9.*pull"):
        load_head(file)


def test_metadata_cfg_is_read_from_the_file(tmp_path):
    tensors, metadata = parts_of()
    cfg = json.loads(metadata["cfg"]) | {"activation": "relu"}
    changed = load_head(save(tmp_path, tensors, metadata | {"cfg": json.dumps(cfg)}))
    x = torch.ones(1, 64)
    assert not torch.equal(
        changed.network.state_head(x), load_head(HEADS / "clm_tiny.pt").network.state_head(x)
    )
