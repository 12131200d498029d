"""From trained tensors to the shipped files: int8 ONNX encoder, head, hashed config."""

import hashlib
import json

import numpy as np
import onnx
from network import EPSILON, HEADS, HIDDEN, LAYERS, POSITIONS, TYPES
from onnx import TensorProto, helper, numpy_helper

OPSET = 20
MASKED = -1e30  # exp of it is an exact zero, so a packed neighbour adds nothing


class Graph:
    """Collects nodes and initializers of one ONNX graph."""

    def __init__(self):
        self.nodes, self.initializers = [], []

    def constant(self, name, value):
        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def add(self, op, inputs, name, **attributes):
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def weight(self, name, matrix):
        """An int8 matrix [out, in] with a scale for each output row, as a float [in, out]."""
        values, scales = quantise_rows(matrix)
        stored = self.constant(f"{name}.int8", values.T)
        wide = self.add("Cast", [stored], f"{name}.float", to=TensorProto.FLOAT)
        return self.add("Mul", [wide, self.constant(f"{name}.scales", scales)], f"{name}.weight")

    def linear(self, x, name, matrix, bias):
        product = self.add("MatMul", [x, self.weight(name, matrix)], f"{name}.product")
        return self.add("Add", [product, self.constant(f"{name}.bias", bias)], f"{name}.out")

    def norm(self, x, name, tensors, prefix):
        weight = self.constant(f"{name}.gamma", tensors[f"{prefix}.weight"])
        bias = self.constant(f"{name}.beta", tensors[f"{prefix}.bias"])
        return self.add("LayerNormalization", [x, weight, bias], name, epsilon=EPSILON)


def quantise_rows(matrix):
    """Symmetric int8 with one float32 scale for each row; rows of zeros keep scale 1."""
    peak = np.abs(matrix).max(axis=1)
    scales = np.where(peak > 0, peak / 127, 1).astype(np.float32)
    return np.rint(matrix / scales[:, None]).astype(np.int8), scales


def make_encoder(tensors):
    """The packed encoder: all tokens of several texts in one row, attention inside each text only.

    Inputs: token_ids, position_ids, segment_ids [T] int64; pooling [N, T] float32.
    Output: vectors [N, 384] float32, the pooled hidden states, not normalised.
    """
    graph = Graph()
    x = _embed(graph, tensors)
    mask = _segment_mask(graph)
    graph.constant("heads_shape", np.array([-1, HEADS, HIDDEN // HEADS], np.int64))
    graph.constant("hidden_shape", np.array([-1, HIDDEN], np.int64))
    for index in range(LAYERS):
        x = _layer(graph, x, mask, tensors, index)
    graph.add("MatMul", ["pooling", x], "vectors")
    return _finish(graph)


def _embed(graph, tensors):
    values, scales = quantise_rows(tensors["embeddings.word_embeddings.weight"])
    graph.constant("words.int8", values)
    graph.constant("words.scales", scales[:, None])
    rows = graph.add("Gather", ["words.int8", "token_ids"], "words.rows")
    wide = graph.add("Cast", [rows], "words.float", to=TensorProto.FLOAT)
    scale = graph.add("Gather", ["words.scales", "token_ids"], "words.row_scales")
    words = graph.add("Mul", [wide, scale], "words")
    # every text is of token type 0, so its row is folded into the positions
    kind = tensors["embeddings.token_type_embeddings.weight"][0]
    table = tensors["embeddings.position_embeddings.weight"] + kind
    graph.constant("positions.table", table)
    positions = graph.add("Gather", ["positions.table", "position_ids"], "positions")
    total = graph.add("Add", [words, positions], "embedded")
    return graph.norm(total, "embedded.norm", tensors, "embeddings.LayerNorm")


def _segment_mask(graph):
    graph.constant("axis0", np.array([0], np.int64))
    graph.constant("axis1", np.array([1], np.int64))
    graph.constant("masked", np.float32(MASKED))
    graph.constant("zero", np.float32(0))
    column = graph.add("Unsqueeze", ["segment_ids", "axis1"], "segments.column")
    row = graph.add("Unsqueeze", ["segment_ids", "axis0"], "segments.row")
    same = graph.add("Equal", [column, row], "segments.same")
    return graph.add("Where", [same, "zero", "masked"], "segments.mask")


def _layer(graph, x, mask, tensors, index):
    prefix, name = f"encoder.layer.{index}", f"layer{index}"
    attended = _attention(graph, x, mask, tensors, f"{prefix}.attention.self", name)
    x = _residual(graph, x, attended, tensors, f"{prefix}.attention.output", f"{name}.attention")
    wide = graph.linear(x, f"{name}.wide", *_dense(tensors, f"{prefix}.intermediate.dense"))
    wide = graph.add("Gelu", [wide], f"{name}.gelu")
    return _residual(graph, x, wide, tensors, f"{prefix}.output", f"{name}.ffn")


def _attention(graph, x, mask, tensors, prefix, name):
    heads = {}
    for part, order in (("query", [1, 0, 2]), ("key", [1, 2, 0]), ("value", [1, 0, 2])):
        matrix, bias = _dense(tensors, f"{prefix}.{part}")
        if part == "query":  # the softmax scale, folded into the weights
            factor = np.float32((HIDDEN // HEADS) ** -0.5)
            matrix, bias = matrix * factor, bias * factor
        flat = graph.linear(x, f"{name}.{part}", matrix, bias)
        split = graph.add("Reshape", [flat, "heads_shape"], f"{name}.{part}.split")
        heads[part] = graph.add("Transpose", [split], f"{name}.{part}.heads", perm=order)
    scores = graph.add("MatMul", [heads["query"], heads["key"]], f"{name}.scores")
    masked = graph.add("Add", [scores, mask], f"{name}.masked")
    weights = graph.add("Softmax", [masked], f"{name}.probabilities", axis=-1)
    context = graph.add("MatMul", [weights, heads["value"]], f"{name}.context")
    merged = graph.add("Transpose", [context], f"{name}.merged", perm=[1, 0, 2])
    return graph.add("Reshape", [merged, "hidden_shape"], f"{name}.attended")


def _residual(graph, x, inner, tensors, prefix, name):
    out = graph.linear(inner, name, *_dense(tensors, f"{prefix}.dense"))
    total = graph.add("Add", [out, x], f"{name}.sum")
    return graph.norm(total, f"{name}.norm", tensors, f"{prefix}.LayerNorm")


def _dense(tensors, prefix):
    return tensors[f"{prefix}.weight"], tensors[f"{prefix}.bias"]


def _finish(graph):
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["T"])
        for name in ("token_ids", "position_ids", "segment_ids")
    ]
    inputs.append(helper.make_tensor_value_info("pooling", TensorProto.FLOAT, ["N", "T"]))
    output = helper.make_tensor_value_info("vectors", TensorProto.FLOAT, ["N", HIDDEN])
    made = helper.make_graph(graph.nodes, "mini", inputs, [output], graph.initializers)
    model = helper.make_model(
        made, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="models-mini"
    )
    model.ir_version = 9  # read by every onnxruntime that knows opset 20
    onnx.checker.check_model(model)
    return model


def head_arrays(tensors):
    """The head's tensors by name, float32, the MLP's matrices as [in, out]."""
    arrays = {"scale": tensors["scale"]}
    for kind, type in enumerate(TYPES):
        for part in ("inner", "outer"):
            arrays[f"{type}.{part}.weight"] = tensors[f"{part}.{kind}.weight"].T.copy()
            arrays[f"{type}.{part}.bias"] = tensors[f"{part}.{kind}.bias"]
        arrays[f"{type}.scale"] = tensors["scale"][kind]
    del arrays["scale"]
    return arrays


def write_model(folder, model, temperatures, tokenizer_json, facts):
    """Writes encoder.onnx, head.npz, tokenizer.json and config.json with their hashes."""
    folder.mkdir(parents=True, exist_ok=True)
    encoder = {name: t.numpy() for name, t in model.encoder.state_dict().items()}
    head = {name: t.numpy() for name, t in model.head.state_dict().items()}
    (folder / "encoder.onnx").write_bytes(make_encoder(encoder).SerializeToString())
    with (folder / "head.npz").open("wb") as file:
        np.savez(file, **head_arrays(head))
    (folder / "tokenizer.json").write_text(tokenizer_json, encoding="utf-8")
    config = {
        "format": 1,
        "max_positions": POSITIONS,
        "temperatures": {type: round(value, 4) for type, value in temperatures.items()},
        "training": facts,
        "sha256": {
            name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
            for name in ("encoder.onnx", "head.npz", "tokenizer.json")
        },
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
