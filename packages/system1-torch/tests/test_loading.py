"""Safetensors go straight into place, strictly; whatever is wrong is named."""

import json
import struct

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from system1_core.errors import CheckpointError
from system1_torch.loading import check_shapes, check_targets, load_into, load_pt, make_empty
from system1_torch.safetensors_file import Safetensors


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(6, 5)
        self.head = nn.Linear(5, 2, bias=False)


def weights(dtype=torch.float32):
    return {
        "proj.weight": torch.randn(5, 6).to(dtype),
        "proj.bias": torch.randn(5).to(dtype),
        "head.weight": torch.randn(2, 5).to(dtype),
    }


def raw_file(path, header, payload=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + payload)
    return path


@pytest.mark.parametrize("source", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("served", [torch.float32, torch.bfloat16])
def test_weights_arrive_cast_to_the_serving_dtype(tmp_path, source, served):
    saved = weights(source)
    save_file(saved, tmp_path / "model.safetensors")
    module = make_empty(Network, device="cpu", dtype=served)
    load_into(module, Safetensors.open(tmp_path))
    for name, tensor in module.state_dict().items():
        assert tensor.dtype == served
        assert torch.equal(tensor, saved[name].to(served))


def test_named_submodules_stay_in_float32(tmp_path):
    module = make_empty(Network, device="cpu", dtype=torch.bfloat16, float32=["head"])
    assert module.head.weight.dtype == torch.float32
    assert module.proj.weight.dtype == torch.bfloat16
    assert not module.training
    assert not module.proj.weight.requires_grad


def test_targets_may_be_views_of_a_larger_weight(tmp_path):
    saved = weights()
    save_file(saved, tmp_path / "model.safetensors")
    fused = torch.full((5 * 6 + 5 + 10,), torch.nan)
    targets = {
        "proj.weight": fused[:30].view(5, 6),
        "proj.bias": fused[30:35],
        "head.weight": fused[35:].view(2, 5),
    }
    load_into(targets, Safetensors.open(tmp_path / "model.safetensors"))
    assert torch.equal(fused[:30].view(5, 6), saved["proj.weight"])
    assert torch.isfinite(fused).all()


def test_renamed_and_left_out_tensors(tmp_path):
    saved = {f"model.{name}": tensor for name, tensor in weights().items()}
    save_file({**saved, "mtp.weight": torch.ones(3)}, tmp_path / "model.safetensors")
    module = make_empty(Network, device="cpu", dtype=torch.float32)

    def rename(name):
        return None if name.startswith("mtp.") else name.removeprefix("model.")

    load_into(module, Safetensors.open(tmp_path), rename=rename)
    assert torch.equal(module.proj.bias, saved["model.proj.bias"])


def test_two_tensors_for_one_place_are_refused(tmp_path):
    both = {**weights(), "model.proj.bias": torch.ones(5)}
    save_file(both, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"are both 'proj\.bias'"):
        load_into(
            make_empty(Network, device="cpu", dtype=torch.float32),
            Safetensors.open(tmp_path),
            rename=lambda name: name.removeprefix("model."),
        )


def test_a_transform_sees_the_name_and_the_tensor(tmp_path):
    saved = weights()
    save_file(saved, tmp_path / "model.safetensors")
    module = make_empty(Network, device="cpu", dtype=torch.float32)
    load_into(
        module,
        Safetensors.open(tmp_path),
        transform=lambda name, tensor: tensor * 2 if name == "head.weight" else tensor,
    )
    assert torch.equal(module.head.weight, saved["head.weight"] * 2)
    assert torch.equal(module.proj.bias, saved["proj.bias"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"proj.bias": None}, r"missing proj\.bias"),
        ({"other": torch.ones(2)}, "unexpected other"),
        ({"proj.bias": torch.ones(6)}, r"found shape \[6\], expected \[5\]"),
        ({"proj.bias": torch.ones(5, dtype=torch.int64)}, r"found torch\.int64, expected"),
    ],
    ids=["missing", "extra", "shape", "dtype"],
)
def test_a_wrong_tensor_is_named_before_anything_is_copied(tmp_path, change, message):
    saved = {k: v for k, v in {**weights(), **change}.items() if v is not None}
    save_file(saved, tmp_path / "model.safetensors")
    module = make_empty(Network, device="cpu", dtype=torch.float32)
    nn.init.constant_(module.head.weight, 7.0)
    with pytest.raises(CheckpointError, match=message) as error:
        load_into(module, Safetensors.open(tmp_path))
    assert "model.safetensors" in str(error.value)
    assert (module.head.weight == 7.0).all()
    with torch.device("meta"):
        places = Network().state_dict()
    with pytest.raises(CheckpointError, match=message):
        check_targets(places, Safetensors.open(tmp_path))


def test_targets_without_memory_can_be_checked(tmp_path):
    save_file(weights(), tmp_path / "model.safetensors")
    with torch.device("meta"):
        check_targets(Network().state_dict(), Safetensors.open(tmp_path))


@pytest.mark.parametrize("value", [torch.nan, torch.inf, 1e6], ids=["nan", "inf", "overflow"])
def test_values_not_finite_in_the_serving_dtype_are_refused_when_asked(tmp_path, value):
    saved = weights()
    saved["proj.weight"][2, 3] = value
    save_file(saved, tmp_path / "model.safetensors")
    module = make_empty(Network, device="cpu", dtype=torch.float16)
    load_into(module, Safetensors.open(tmp_path))
    with pytest.raises(CheckpointError, match=r"proj\.weight.*not finite"):
        load_into(module, Safetensors.open(tmp_path), check_finite=True)


def test_empty_tensors_and_unaligned_offsets_are_read(tmp_path):
    header = {
        "byte": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]},
        "none": {"dtype": "F32", "shape": [0, 4], "data_offsets": [3, 3]},
        "half": {"dtype": "F16", "shape": [2], "data_offsets": [3, 7]},
    }
    payload = bytes([1, 2, 3]) + torch.tensor([0.5, -2.0]).half().numpy().tobytes()
    file = Safetensors.open(raw_file(tmp_path / "a.safetensors", header, payload))
    with file.mapped("half") as half, file.mapped("none") as none, file.mapped("byte") as byte:
        assert half.tolist() == [0.5, -2.0]
        assert none.shape == (0, 4)
        assert byte.tolist() == [1, 2, 3]


def test_writing_to_a_mapped_tensor_leaves_the_file_alone(tmp_path):
    save_file({"a": torch.ones(4)}, tmp_path / "model.safetensors")
    file = Safetensors.open(tmp_path)
    with file.mapped("a") as tensor:
        tensor.zero_()
    with file.mapped("a") as tensor:
        assert tensor.tolist() == [1, 1, 1, 1]


GOOD = {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}


@pytest.mark.parametrize(
    ("header", "payload", "message"),
    [
        (GOOD, b"1234567", "15 bytes|expected"),
        (GOOD, b"123456789", "expected"),
        (b"{", b"", "header is not valid"),
        (b"[]", b"", "header is a list"),
        (b'{"a": {}, "a": {}}', b"", "'a' comes twice"),
        ({"a": {"dtype": "F32", "shape": [2]}}, b"12345678", "malformed entry"),
        ({"a": {**GOOD["a"], "shape": [-2]}}, b"12345678", "malformed entry"),
        ({"a": {**GOOD["a"], "dtype": "F9"}}, b"12345678", "found dtype 'F9'"),
        ({"a": {**GOOD["a"], "shape": [3]}}, b"12345678", r"8 bytes, expected 12"),
        ({"a": {**GOOD["a"], "data_offsets": [4, 12]}}, b"1" * 12, "begins at byte"),
        ({**GOOD, "b": {**GOOD["a"], "data_offsets": [4, 12]}}, b"1" * 12, "'b': begins at byte"),
    ],
    ids=[
        "truncated", "trailing", "not-json", "not-object", "duplicate", "no-offsets",
        "negative", "dtype", "length", "hole", "overlap",
    ],
)  # fmt: skip
def test_a_damaged_file_is_refused(tmp_path, header, payload, message):
    file = raw_file(tmp_path / "model.safetensors", header, payload)
    with pytest.raises(CheckpointError, match=message) as error:
        Safetensors.open(tmp_path)
    assert str(file) in str(error.value)
    assert "fetch the file again" in str(error.value) or "convert" in str(error.value)


@pytest.mark.parametrize("content", [b"", b"\x01", struct.pack("<Q", 2**40) + b"{}"])
def test_a_file_too_short_for_its_header_is_refused(tmp_path, content):
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match="too few for its header"):
        Safetensors.open(tmp_path)


def test_a_folder_without_weights_says_what_it_looked_for(tmp_path):
    with pytest.raises(CheckpointError, match=r"neither model\.safetensors nor"):
        Safetensors.open(tmp_path)


def sharded(folder, weight_map, shards):
    for shard, tensors in shards.items():
        save_file(tensors, folder / shard)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def test_shards_are_read_as_one(tmp_path):
    sharded(
        tmp_path,
        {"a": "1.safetensors", "b": "2.safetensors"},
        {"1.safetensors": {"a": torch.ones(2)}, "2.safetensors": {"b": torch.zeros(3)}},
    )
    targets = {"a": torch.empty(2), "b": torch.empty(3)}
    load_into(targets, Safetensors.open(tmp_path))
    assert targets["a"].tolist() == [1, 1]
    assert targets["b"].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    "shard", ["../1.safetensors", "/etc/passwd", "sub/1.safetensors", "..", "a\\b", "", 3, "c:x"]
)
def test_a_shard_outside_the_folder_is_refused(tmp_path, shard):
    sharded(tmp_path, {"a": shard}, {})
    with pytest.raises(CheckpointError, match="not the name of a file in this folder"):
        Safetensors.open(tmp_path)


@pytest.mark.parametrize(
    ("weight_map", "message"),
    [
        ({"a": "1.safetensors", "b": "1.safetensors"}, "1 listed tensors are in no shard"),
        ({"a": "1.safetensors", "b": "2.safetensors"}, "missing, named by"),
        ({}, None),
        ({"b": "1.safetensors"}, "'a': the index lists it in no shard"),
    ],
    ids=["tensor", "shard", "empty", "extra"],
)
def test_an_index_that_disagrees_with_its_shards_is_refused(tmp_path, weight_map, message):
    sharded(tmp_path, weight_map, {"1.safetensors": {"a": torch.ones(2)}})
    if message is None:
        assert len(Safetensors.open(tmp_path)) == 0
        return
    with pytest.raises(CheckpointError, match=message):
        Safetensors.open(tmp_path)


def test_an_index_without_a_weight_map_is_refused(tmp_path):
    (tmp_path / "model.safetensors.index.json").write_text("[]")
    with pytest.raises(CheckpointError, match="weight_map"):
        Safetensors.open(tmp_path)


def test_pt_files_give_their_tensors(tmp_path):
    torch.save({"weight": torch.ones(1, 3), "bias": torch.zeros(1)}, tmp_path / "head.pt")
    found = load_pt(tmp_path / "head.pt")
    check_shapes(found, {"weight": torch.empty(1, 3), "bias": torch.empty(1)}, "head.pt")
    with pytest.raises(CheckpointError, match=r"found shape \[1, 3\]"):
        check_shapes(found, {"weight": torch.empty(3), "bias": torch.empty(1)}, "head.pt")


class Runs:
    def __reduce__(self):
        return (print, ("pickled code ran",))


def test_pickled_code_in_a_pt_file_never_runs(tmp_path, capsys):
    torch.save({"weight": Runs()}, tmp_path / "head.pt")
    with pytest.raises(CheckpointError, match="pickled code could run"):
        load_pt(tmp_path / "head.pt")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("content", [b"", b"not a torch file"])
def test_a_damaged_pt_file_is_refused(tmp_path, content):
    (tmp_path / "head.pt").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"head\.pt"):
        load_pt(tmp_path / "head.pt")


def test_a_missing_pt_file_is_named(tmp_path):
    with pytest.raises(CheckpointError, match="missing; fetch it"):
        load_pt(tmp_path / "head.pt")
