"""The shipped encoder is what `training/export.py` makes of its tensors, bit for bit."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from models_mini.checkpoint import SHIPPED

TRAINING = Path(__file__).parent.parent / "training"


@pytest.fixture(scope="module")
def export():
    sys.path.insert(0, str(TRAINING))
    try:
        import export
    finally:
        sys.path.remove(str(TRAINING))
    return export


@pytest.fixture(scope="module")
def tensors(export):
    return export.read_encoder((SHIPPED / "encoder.onnx").read_bytes())


def test_tensors_of_the_shipped_encoder_give_its_file_again(export, tensors):
    assert export.make_encoder(tensors) == (SHIPPED / "encoder.onnx").read_bytes()


def test_another_weight_gives_another_file(export, tensors):
    name = "encoder.layer.3.output.dense.weight"
    changed = tensors | {name: tensors[name] * np.float32(1.5)}
    assert export.make_encoder(changed) != (SHIPPED / "encoder.onnx").read_bytes()


def test_quantising_again_changes_nothing(export):
    drawn = (
        np.random.default_rng(0).standard_normal((50, 64)) * np.geomspace(1e-6, 1e3, 50)[:, None]
    )
    values, scales = export.quantise_rows(drawn.astype(np.float32))
    again = export.quantise_rows(export.dequantise_rows(values, scales))
    assert np.array_equal(values, again[0])
    assert np.array_equal(scales, again[1])
    assert np.abs(values).max() <= 127


def test_error_of_a_weight_is_at_most_half_a_step_of_its_row(export):
    matrix = np.random.default_rng(1).standard_normal((20, 30)).astype(np.float32)
    values, scales = export.quantise_rows(matrix)
    error = np.abs(export.dequantise_rows(values, scales) - matrix)
    assert (error <= scales[:, None] * 0.5001).all()


def test_written_folder_names_the_hash_of_every_file(export, tensors, tmp_path):
    head = {"x": np.zeros(3, np.float32)}
    export.write_model(tmp_path, tensors, head, "{}", {"readouts": {}})
    config = json.loads((tmp_path / "config.json").read_text())
    assert set(config["sha256"]) == {"encoder.onnx", "head.npz", "tokenizer.json"}
    assert (
        config["sha256"]["encoder.onnx"]
        == json.loads((SHIPPED / "config.json").read_text())["sha256"]["encoder.onnx"]
    )
