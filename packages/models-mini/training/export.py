"""From trained tensors to the shipped files: `python export.py RUN`. Needs numpy and onnx alone.

RUN is a folder that `train.py` wrote. The same tensors give the same files, bit for bit.
"""

import argparse
import hashlib
import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from quantise import dequantise_rows, quantise_rows
from sizes import EPSILON, HEADS, HIDDEN, LAYERS, POSITIONS, TYPES

from models_mini.checkpoint import FORMAT

OPSET = 20
MASKED = -1e30  # exp of it is an exact zero, so a packed neighbour adds nothing
WORDS = "words"
TABLES = (("position_embeddings", "position_ids"), ("token_type_embeddings", "kind_ids"))
IDS = ("token_ids", "kind_ids", "position_ids", "segment_ids", "parent_ids", "layers")
FILES = ("encoder.onnx", "head.npz", "tokenizer.json")


class Graph:
    """Collects nodes and initializers of one ONNX graph; tensors keep the base's names."""

    def __init__(self, tensors):
        self.tensors, self.nodes, self.initializers = tensors, [], []

    def constant(self, name, value):
        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def tensor(self, name):
        return self.constant(name, self.tensors[name])

    def add(self, op, inputs, name, **attributes):
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def weight(self, name):
        """An int8 matrix [out, in] with a scale for each output row, as a float [in, out]."""
        values, scales = quantise_rows(self.tensors[name])
        stored = self.constant(f"{name}.int8", values.T)
        wide = self.add("Cast", [stored], f"{name}.float", to=TensorProto.FLOAT)
        return self.add("Mul", [wide, self.constant(f"{name}.scales", scales)], name)

    def linear(self, x, prefix):
        product = self.add("MatMul", [x, self.weight(f"{prefix}.weight")], f"{prefix}.product")
        return self.add("Add", [product, self.tensor(f"{prefix}.bias")], f"{prefix}.out")

    def norm(self, x, prefix):
        inputs = [x, self.tensor(f"{prefix}.weight"), self.tensor(f"{prefix}.bias")]
        return self.add("LayerNormalization", inputs, f"{prefix}.out", epsilon=EPSILON)


def make_encoder(tensors):
    """The packed encoder: all tokens of several prompts in one row.

    Inputs [T] int64: a token sees its own segment and, from layer `layers` on, the segment
    `parent_ids`; pooling [N, T] float32. Output: vectors [N, 384] float32, not normalised.
    """
    graph = Graph(tensors)
    x = _embed(graph)
    masks = _Masks(graph)
    graph.constant("shape.heads", np.array([-1, HEADS, HIDDEN // HEADS], np.int64))
    graph.constant("shape.hidden", np.array([-1, HIDDEN], np.int64))
    graph.constant("softmax.scale", np.float32((HIDDEN // HEADS) ** -0.5))
    for index in range(LAYERS):
        x = _layer(graph, x, masks.at(index), f"encoder.layer.{index}")
    graph.add("MatMul", ["pooling", x], "vectors")
    return _finish(graph)


def _embed(graph):
    values, scales = quantise_rows(graph.tensors[WORDS])
    graph.constant(f"{WORDS}.int8", values)
    graph.constant(f"{WORDS}.scales", scales[:, None])
    rows = graph.add("Gather", [f"{WORDS}.int8", "token_ids"], "words.rows")
    wide = graph.add("Cast", [rows], "words.float", to=TensorProto.FLOAT)
    scale = graph.add("Gather", [f"{WORDS}.scales", "token_ids"], "words.row_scales")
    total = graph.add("Mul", [wide, scale], "words.out")
    for table, ids in TABLES:
        stored = graph.tensor(f"embeddings.{table}.weight")
        found = graph.add("Gather", [stored, ids], f"{table}.rows")
        total = graph.add("Add", [total, found], f"{table}.sum")
    return graph.norm(total, "embeddings.LayerNorm")


class _Masks:
    """The mask of each layer: own segment, and the parent where the layer is late enough."""

    def __init__(self, graph):
        self.graph = graph
        for name, value in (("axis0", [0]), ("axis1", [1])):
            graph.constant(name, np.array(value, np.int64))
        graph.constant("masked", np.float32(MASKED))
        graph.constant("zero", np.float32(0))
        self.row = graph.add("Unsqueeze", ["segment_ids", "axis0"], "segments.row")
        self.same = self._equal("segment_ids")
        self.parent = self._equal("parent_ids")

    def _equal(self, ids):
        column = self.graph.add("Unsqueeze", [ids, "axis1"], f"{ids}.column")
        return self.graph.add("Equal", [column, self.row], f"{ids}.seen")

    def at(self, layer):
        graph, name = self.graph, f"mask.{layer}"
        number = graph.constant(f"{name}.number", np.array(layer, np.int64))
        begun = graph.add("LessOrEqual", ["layers", number], f"{name}.begun")
        column = graph.add("Unsqueeze", [begun, "axis1"], f"{name}.column")
        parent = graph.add("And", [self.parent, column], f"{name}.parent")
        seen = graph.add("Or", [self.same, parent], f"{name}.seen")
        return graph.add("Where", [seen, "zero", "masked"], name)


def _layer(graph, x, mask, prefix):
    attended = _attention(graph, x, mask, f"{prefix}.attention.self")
    x = _residual(graph, x, attended, f"{prefix}.attention.output")
    wide = graph.linear(x, f"{prefix}.intermediate.dense")
    wide = graph.add("Gelu", [wide], f"{prefix}.gelu")
    return _residual(graph, x, wide, f"{prefix}.output")


def _attention(graph, x, mask, prefix):
    heads = {}
    for part, order in (("query", [1, 0, 2]), ("key", [1, 2, 0]), ("value", [1, 0, 2])):
        flat = graph.linear(x, f"{prefix}.{part}")
        if part == "query":
            flat = graph.add("Mul", [flat, "softmax.scale"], f"{prefix}.query.scaled")
        split = graph.add("Reshape", [flat, "shape.heads"], f"{prefix}.{part}.split")
        heads[part] = graph.add("Transpose", [split], f"{prefix}.{part}.heads", perm=order)
    scores = graph.add("MatMul", [heads["query"], heads["key"]], f"{prefix}.scores")
    masked = graph.add("Add", [scores, mask], f"{prefix}.masked")
    weights = graph.add("Softmax", [masked], f"{prefix}.probabilities", axis=-1)
    context = graph.add("MatMul", [weights, heads["value"]], f"{prefix}.context")
    merged = graph.add("Transpose", [context], f"{prefix}.merged", perm=[1, 0, 2])
    return graph.add("Reshape", [merged, "shape.hidden"], f"{prefix}.attended")


def _residual(graph, x, inner, prefix):
    out = graph.linear(inner, f"{prefix}.dense")
    total = graph.add("Add", [out, x], f"{prefix}.sum")
    return graph.norm(total, f"{prefix}.LayerNorm")


def _finish(graph):
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["T"]) for name in IDS]
    inputs.append(helper.make_tensor_value_info("pooling", TensorProto.FLOAT, ["N", "T"]))
    output = helper.make_tensor_value_info("vectors", TensorProto.FLOAT, ["N", HIDDEN])
    made = helper.make_graph(graph.nodes, "mini", inputs, [output], graph.initializers)
    model = helper.make_model(
        made, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="models-mini"
    )
    model.ir_version = 9  # read by every onnxruntime that knows opset 20
    onnx.checker.check_model(model)
    return model.SerializeToString(deterministic=True)


def read_encoder(content):
    """The tensors that a shipped encoder.onnx holds, float32; `make_encoder` gives it again."""
    stored = onnx.load_from_string(content).graph.initializer
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in stored}
    tensors = {}
    for name, array in arrays.items():
        if name.endswith(".int8"):
            plain = name.removesuffix(".int8")
            values = array if plain == WORDS else array.T
            tensors[plain] = dequantise_rows(values, arrays[f"{plain}.scales"].reshape(-1))
        elif name.startswith(("embeddings.", "encoder.")) and not name.endswith(".scales"):
            tensors[name] = array
    return tensors


def head_arrays(tensors, cosine=()):
    """The head's tensors by name, float32, the MLP's matrices as [in, out].

    The types in `cosine` have no MLP. The factor that brings the network's inputs near 1 is
    folded into the inner weights.
    """
    arrays = {}
    for kind, type in enumerate(TYPES):
        arrays[f"{type}.scale"] = tensors["scale"][kind]
        if type in cosine:
            continue
        for part, factor in (("inner", HIDDEN**0.5), ("outer", 1.0)):
            weight = tensors[f"{part}.{kind}.weight"].T * np.float32(factor)
            arrays[f"{type}.{part}.weight"] = np.ascontiguousarray(weight)
            arrays[f"{type}.{part}.bias"] = tensors[f"{part}.{kind}.bias"]
    return arrays


def write_model(folder, encoder, head, tokenizer_json, config):
    """Writes encoder.onnx, head.npz, tokenizer.json, and config.json with their hashes.

    `encoder` holds the base's names and `words`; `head` the arrays of `head_arrays`; `config` the
    readouts, temperatures and training facts.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "encoder.onnx").write_bytes(make_encoder(encoder))
    with (folder / "head.npz").open("wb") as file:
        np.savez(file, **head)
    (folder / "tokenizer.json").write_text(tokenizer_json, encoding="utf-8")
    hashes = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in FILES}
    whole = {"format": FORMAT, "max_positions": POSITIONS, **config, "sha256": hashes}
    (folder / "config.json").write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")


def config_of(report):
    """What `config.json` keeps of a run's report."""
    settings = report["settings"]
    facts = {name: settings[name] for name in ("name", "seed", "batch", "precision")}
    facts["blend"] = report["blend"]
    return {
        "readouts": {type: settings[type] for type in TYPES},
        "temperatures": {key: round(t, 4) for key, t in report["temperatures"].items()},
        "training": facts | {name: report[name] for name in ("steps", "text_sha256")},
    }


def load_run(run):
    """Encoder (without words) and head tensors of a training run, float32."""
    from safetensors.numpy import load_file  # not needed to check a shipped file

    body = load_file(run / "body-0.safetensors") | load_file(run / "body-1.safetensors")
    return {k: v.astype(np.float32) for k, v in body.items()}, load_file(run / "head.safetensors")


def main():
    from base import base_tokenizer_json, load_base

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    shipped = Path(__file__).parent.parent / "src/models_mini/model"
    parser.add_argument("--out", type=Path, default=shipped)
    args = parser.parse_args()
    encoder, head = load_run(args.run)
    encoder[WORDS] = load_base()[0]
    report = json.loads((args.run / "report.json").read_text(encoding="utf-8"))
    arrays = head_arrays(head, report["settings"]["cosine"].split())
    write_model(args.out, encoder, arrays, base_tokenizer_json(), config_of(report))


if __name__ == "__main__":
    main()
