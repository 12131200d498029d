"""Kernels over a whole tree against their references in float32: Triton's, here or on a device.

Without a device they run in Triton's interpreter, so that their arithmetic is checked everywhere.
"""

import pytest
import torch
from cases import DEEP_TREES, rule_inputs, tree_attention_inputs

import system1_cuda.gated_tree_attention as attention
import system1_cuda.log_sum_exp as sums
import system1_cuda.tree_delta_rule as rule
from system1_cuda.build import load_kernels
from system1_torch.ops.gated_tree_attention import gated_tree_attention
from system1_torch.ops.log_sum_exp import log_sum_exp
from system1_torch.ops.tree_delta_rule import tree_delta_rule
from system1_torch.packed_tree import make_tables, tree_of
from system1_torch.testing import check_kernel, fresh_generator, relative_error

IS_INTERPRETED = not torch.cuda.is_available()  # see conftest.py
# The interpreter's own habit.
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array with ndim")
DEVICE = "cpu" if IS_INTERPRETED else "cuda"
# The interpreter multiplies no bfloat16.
DTYPE = torch.float16 if IS_INTERPRETED else torch.bfloat16
# The interpreter is slow: small trees of every kind are enough for it.
QUICK = ("one-token", "lone", "branches", "three-levels")
CHOSEN = {name: DEEP_TREES[name] for name in (QUICK if IS_INTERPRETED else DEEP_TREES)}
DEEP = pytest.mark.parametrize("tree", CHOSEN.values(), ids=CHOSEN)
# Products take bfloat16 operands; states and sums are float32.
RULE_TOLERANCE = 1.5e-2
# Weights of a row's softmax are rounded to 16 bits before they meet the values.
ATTENTION_TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 1.2e-2}


@pytest.fixture(scope="module", autouse=True)
def _kernels():
    if not IS_INTERPRETED:
        load_kernels()


@pytest.fixture
def generator():
    return fresh_generator()


@pytest.fixture(autouse=True)
def _only_kernels(monkeypatch):
    """No silent fallback; what a device would be asked is answered for the interpreter."""

    def refuse(*_):
        raise AssertionError("went to the reference")

    stand_in = type("Refuses", (), {"__getattr__": lambda self, name: refuse})()
    for module in (attention, sums, rule):
        monkeypatch.setattr(module, "reference", stand_in)
        if IS_INTERPRETED and module is not rule:
            monkeypatch.setattr(module, "_covers", lambda *_: True)
    if IS_INTERPRETED:
        monkeypatch.setattr(attention, "_shared_bytes", lambda _: 227 << 10)
        monkeypatch.setattr(attention, "_multiprocessors", lambda _: 132)


@pytest.mark.gpu
@DEEP
@pytest.mark.parametrize("heads", [(2, 6), (1, 1)])
def test_tree_delta_rule(tree, heads, generator):
    inputs = rule_inputs(tree, generator, DTYPE, DEVICE, key_heads=heads[0], value_heads=heads[1])
    check_rule(rule.tree_delta_rule, inputs, generator)


WARPS = [(slices, stages, False) for slices in (2, 4) for stages in (1, 2)]
GROUPS = [(2, stages, True) for stages in (1, 3)]


@pytest.mark.gpu
@pytest.mark.parametrize("schedule", WARPS + GROUPS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("tree", ["lone", "long-lone", "shared-state", "four-levels"])
def test_every_schedule_of_the_delta_rule(schedule, dtype, tree, generator, monkeypatch):
    choose(schedule, monkeypatch)
    inputs = rule_inputs(DEEP_TREES[tree], generator, dtype, DEVICE)
    check_rule(rule.tree_delta_rule, inputs, generator)


@pytest.mark.gpu
@pytest.mark.parametrize("schedule", WARPS + GROUPS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("tree", ["lone", "long-lone", "shared-state", "four-levels"])
def test_states_that_hardly_fade(schedule, dtype, tree, generator, monkeypatch):
    """Elsewhere a chunk forgets what came before it so fast that a wrong state hardly shows."""
    choose(schedule, monkeypatch)
    inputs = rule_inputs(DEEP_TREES[tree], generator, dtype, DEVICE)
    inputs[3].mul_(0.02)
    check_rule(rule.tree_delta_rule, inputs, generator)


def choose(schedule, monkeypatch):
    if schedule[2] and torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("warpgroup products are Hopper's")
    monkeypatch.setattr(rule, "_schedule", lambda *_: rule._Schedule(*schedule))


@pytest.mark.gpu
@pytest.mark.parametrize("schedule", [(2, 2, False), (2, 1, True), (2, 3, True)], ids=str)
def test_replays_of_a_graph_follow_their_inputs(schedule, generator, monkeypatch):
    """The second kernel starts ahead of the first one's end and must not read its work early."""
    choose(schedule, monkeypatch)
    tree = DEEP_TREES["shared-state"]
    *tensors, packed = rule_inputs(tree, generator, DTYPE, DEVICE)
    given = [x.clone() for x in tensors]
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        rule.tree_delta_rule(*given, packed)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        copies = [x * 1 for x in given]
        for _ in range(3):
            copies[2] = rule.tree_delta_rule(*copies, packed)
    for _ in range(20):
        *fresh, _ = rule_inputs(tree, generator, DTYPE, DEVICE)
        for place, x in zip(given, fresh, strict=True):
            place.copy_(x)
        graph.replay()
        for _ in range(3):
            fresh[2] = rule.tree_delta_rule(*fresh, packed)
            torch.cuda.synchronize()
        assert torch.equal(copies[2], fresh[2])


@pytest.mark.parametrize(
    ("capability", "heads", "chunks", "segments", "expected"),
    [
        ((9, 0), 48, 2, 1, (2, 3, True)),
        ((9, 0), 48, 54, 1, (2, 3, True)),
        ((9, 0), 48, 36, 5, (2, 3, True)),
        ((9, 0), 48, 32, 16, (2, 1, True)),
        ((8, 0), 48, 2, 1, (2, 1, False)),
        ((10, 0), 24, 54, 1, (4, 2, False)),
    ],
)
def test_the_schedule_follows_device_and_sizes(
    capability, heads, chunks, segments, expected, monkeypatch
):
    monkeypatch.setattr(rule, "_capability", lambda _: capability)
    monkeypatch.setattr(rule, "_multiprocessors", lambda _: 132)
    monkeypatch.setattr(rule, "_shared_bytes", lambda _: 227 << 10)
    assert rule._schedule(heads * segments, chunks, segments, 0) == expected


def check_rule(kernel, inputs, generator):
    check_kernel(kernel, tree_delta_rule, inputs, generator=generator, tolerance=RULE_TOLERANCE)


@pytest.mark.gpu
def test_equal_keys_without_decay_stay_exact(generator):
    """The worst case for the inverse: every key the same, all of the value taken at once."""
    q, k, v, g, beta, tree = rule_inputs(DEEP_TREES["lone"], generator, DTYPE, DEVICE)
    k.copy_(k[:1].clone().expand_as(k))
    g.zero_()
    beta.fill_(1.0)
    check_rule(rule.tree_delta_rule, [q, k, v, g, beta, tree], generator)


@pytest.mark.gpu
@DEEP
def test_a_padded_tree_gives_the_same_rows(tree, generator):
    inputs = rule_inputs(tree, generator, DTYPE, DEVICE)
    *tensors, packed = inputs
    tokens = packed.num_tokens
    found = rule.tree_delta_rule(*inputs)
    more = [grown(x) for x in tensors]
    wide = rule.tree_delta_rule(*more, padded(packed, more[0].shape[0]))
    assert torch.equal(wide[:tokens], found)


def padded(tree, tokens):
    """The tree as a graph knows it: on the device only, with room behind its end."""
    lengths = [len(tree.rows(segment)) for segment in range(tree.num_segments)]
    tables = make_tables(
        lengths, tree.parents, num_tokens=tokens, num_segments=tree.num_segments + 5
    )
    return tree_of([], [], *(torch.from_numpy(table).to(DEVICE) for table in tables))


def grown(x):
    """`x` with 40 rows of NaN behind it."""
    return torch.cat([x, x.new_full((40, *x.shape[1:]), torch.nan)])


@DEEP
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("heads", [(4, 2), (6, 1), (3, 3)])
def test_gated_tree_attention(tree, dtype, heads, generator):
    if IS_INTERPRETED and (dtype == torch.bfloat16 or heads != (4, 2)):
        pytest.skip("one case of each tree is enough in the interpreter")
    inputs = tree_attention_inputs(
        tree, generator, dtype, DEVICE, heads=heads[0], key_heads=heads[1]
    )
    check_attention(inputs, generator)


@pytest.mark.parametrize("width", [64, 128, 256])
@pytest.mark.parametrize(("heads", "rows"), [(1, 16), (1, 64), (2, 64)])
@pytest.mark.parametrize("keys", [32, 64])
def test_every_schedule_of_attention(width, heads, rows, keys, generator, monkeypatch):
    monkeypatch.setattr(
        attention, "_schedule", lambda *_: attention._Schedule(heads, rows, keys, 4 * heads, 2)
    )
    inputs = tree_attention_inputs(DEEP_TREES["four-levels"], generator, DTYPE, DEVICE, width=width)
    check_attention(inputs, generator)


@DEEP
def test_attention_of_read_rows(tree, generator):
    q, k, v, gate, packed = tree_attention_inputs(tree, generator, DTYPE, DEVICE)
    ends = sorted({0, *(start - 1 for start in packed.starts[1:])})
    rows = torch.tensor(ends, device=DEVICE)
    check_attention([q[rows], k, v, gate[rows], packed, rows], generator)


@DEEP
def test_attention_over_a_padded_tree(tree, generator):
    *tensors, packed = tree_attention_inputs(tree, generator, DTYPE, DEVICE)
    tokens = packed.num_tokens
    found = attention.gated_tree_attention(*tensors, packed)
    q, k, v, gate = (grown(x) for x in tensors)
    wide = padded(packed, q.shape[0])
    # Another schedule may run, which sums in another order.
    again = attention.gated_tree_attention(q, k, v, gate, wide)[:tokens]
    assert relative_error(again, found.float()) < ATTENTION_TOLERANCE[DTYPE]
    rows = torch.tensor([tokens - 1, 0, 0], device=DEVICE)
    few = attention.gated_tree_attention(q[rows], k, v, gate[rows], wide, rows)
    assert relative_error(few, found[rows]) < 2e-2


def check_attention(inputs, generator):
    check_kernel(
        attention.gated_tree_attention,
        gated_tree_attention,
        inputs,
        generator=generator,
        tolerance=ATTENTION_TOLERANCE[inputs[0].dtype],
    )


@pytest.mark.parametrize("rows", [1, 3, 17, 64])
@pytest.mark.parametrize("words", [1, 129, 1000])
def test_log_sum_exp(rows, words, generator):
    hidden, weight = (
        torch.randn(n, 128, generator=generator).to(DEVICE, DTYPE) for n in (rows, words)
    )
    check_kernel(sums.log_sum_exp, log_sum_exp, [hidden, weight], generator=generator)
