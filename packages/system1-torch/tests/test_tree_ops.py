"""The operations over a packed tree against plain loops over whole sequences."""

import math

import pytest
import torch
import torch.nn.functional as F

from system1_torch.ops.delta_inputs import delta_inputs
from system1_torch.ops.gated_tree_attention import gated_tree_attention
from system1_torch.ops.tree_conv1d import tree_conv1d
from system1_torch.ops.tree_delta_rule import tree_delta_rule
from system1_torch.packed_tree import make_packed_tree

TREES = {
    "one token": ([1], [-1]),
    "a lone sequence of two chunks": ([100], [-1]),
    "roots side by side": ([3, 70, 1], [-1, -1, -1]),
    "two levels, uneven": ([65, 1, 9, 64], [-1, 0, 0, 0]),
    "a prefix of one token": ([1, 5, 2], [-1, 0, 0]),
    "three levels and a stranger": ([4, 7, 3, 5, 2, 1], [-1, -1, 0, 0, 2, 3]),
}


@pytest.fixture(params=TREES.values(), ids=TREES.keys())
def tree(request):
    return make_packed_tree(*request.param)


def path_rows(tree, segment):
    chain = [*tree.ancestors(segment), segment]
    return torch.cat([torch.tensor(list(tree.rows(place))) for place in chain])


def each_path(tree):
    """Rows of the whole sequence that ends with each segment, and how many are its own."""
    for segment in range(tree.num_segments):
        yield path_rows(tree, segment), len(tree.rows(segment))


def normal(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def recurrent(q, k, v, g, beta):
    q, k, v, g, beta = (x.double() for x in (q, k, v, g, beta))
    repeats = v.shape[1] // q.shape[1]
    q, k = q.repeat_interleave(repeats, 1), k.repeat_interleave(repeats, 1)
    state = torch.zeros(v.shape[1], q.shape[2], v.shape[2], dtype=torch.float64)
    outs = []
    for t in range(q.shape[0]):
        state = state * g[t].exp()[:, None, None]
        fresh = beta[t][:, None] * (v[t] - torch.einsum("hk,hkv->hv", k[t], state))
        state = state + torch.einsum("hk,hv->hkv", k[t], fresh)
        outs.append(torch.einsum("hk,hkv->hv", q[t], state))
    return torch.stack(outs).float()


def delta_operands(num_tokens):
    q = F.normalize(normal(num_tokens, 2, 8, seed=1), dim=-1)
    k = F.normalize(normal(num_tokens, 2, 8, seed=2), dim=-1)
    v = normal(num_tokens, 6, 5, seed=3)
    g = -normal(num_tokens, 6, seed=4).abs()
    return q, k, v, g, torch.sigmoid(normal(num_tokens, 6, seed=5))


def test_delta_rule_of_a_tree_equals_its_whole_sequences(tree):
    operands = delta_operands(tree.num_tokens)
    out = tree_delta_rule(*operands, tree)
    for rows, own in each_path(tree):
        expected = recurrent(*(x[rows] for x in operands))[-own:]
        assert (out[rows[-own:]] - expected).abs().max() < 2e-5


def test_delta_rule_survives_a_decay_that_overflows_unmasked():
    tree = make_packed_tree([64], [-1])
    q, k, v, _, beta = delta_operands(64)
    out = tree_delta_rule(q, k, v, torch.full((64, 6), -20.0), beta, tree)
    assert torch.isfinite(out).all()


def test_delta_rule_refuses_value_heads_that_do_not_divide():
    tree = make_packed_tree([2], [-1])
    q, k, v, g, beta = delta_operands(2)
    with pytest.raises(ValueError, match="no multiple"):
        tree_delta_rule(q, k, v[:, :5], g[:, :5], beta[:, :5], tree)


def test_a_cut_at_64_tokens_repeats_the_arithmetic_of_an_uncut_pass():
    operands = delta_operands(150)
    whole = tree_delta_rule(*operands, make_packed_tree([150], [-1]))
    cut = tree_delta_rule(*operands, make_packed_tree([64, 86], [-1, 0]))
    assert torch.equal(whole, cut)


def test_convolution_of_a_tree_equals_its_whole_sequences(tree):
    x, weight = normal(tree.num_tokens, 6), normal(6, 4, seed=1)
    out = tree_conv1d(x, weight, tree)
    for rows, own in each_path(tree):
        padded = F.pad(x[rows].T[None], (3, 0))
        expected = F.silu(F.conv1d(padded, weight[:, None], groups=6))[0].T[-own:]
        assert (out[rows[-own:]] - expected).abs().max() < 1e-5


def test_delta_inputs_have_unit_keys_and_decays_below_one():
    tree = make_packed_tree([9], [-1])
    q, k, v, g, beta = delta_inputs(
        normal(9, 2 * 2 * 4 + 6 * 3),
        normal(9, 6),
        normal(9, 6, seed=1),
        normal(34, 4, seed=2),
        normal(6, seed=3),
        normal(6, seed=4),
        tree,
        key_heads=2,
        key_dim=4,
    )
    assert q.shape == k.shape == (9, 2, 4)
    assert v.shape == (9, 6, 3)
    assert torch.allclose(k.norm(dim=-1), torch.ones(9, 2), atol=1e-4)
    assert torch.allclose(q.norm(dim=-1), torch.full((9, 2), 0.5), atol=1e-4)
    assert (g <= 0).all()
    assert ((beta > 0) & (beta < 1)).all()


def plain_attention(q, k, v, gate):
    repeats = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
    scores = torch.einsum("qhd,khd->hqk", q, k) / math.sqrt(q.shape[-1])
    mask = torch.ones(q.shape[0], k.shape[0], dtype=torch.bool).tril()
    weights = scores.masked_fill(~mask, float("-inf")).softmax(-1)
    return (torch.einsum("hqk,khd->qhd", weights, v) * torch.sigmoid(gate)).flatten(1)


def attention_operands(num_tokens):
    q, gate = normal(num_tokens, 4, 8, seed=1), normal(num_tokens, 4, 8, seed=2)
    return q, normal(num_tokens, 2, 8, seed=3), normal(num_tokens, 2, 8, seed=4), gate


def test_attention_of_a_tree_equals_its_whole_sequences(tree):
    q, k, v, gate = attention_operands(tree.num_tokens)
    out = gated_tree_attention(q, k, v, gate, tree)
    for rows, own in each_path(tree):
        expected = plain_attention(*(x[rows] for x in (q, k, v, gate)))[-own:]
        assert (out[rows[-own:]] - expected).abs().max() < 1e-5


def test_attention_of_chosen_rows_equals_those_rows_of_all(tree):
    q, k, v, gate = attention_operands(tree.num_tokens)
    rows = torch.arange(0, tree.num_tokens, 2)
    some = gated_tree_attention(q[rows], k, v, gate[rows], tree, rows)
    assert (some - gated_tree_attention(q, k, v, gate, tree)[rows]).abs().max() < 1e-6


@pytest.mark.parametrize("block", [1, 4, 7, 1000])
def test_attention_of_siblings_is_the_same_in_any_groups(tree, block, monkeypatch):
    operands = attention_operands(tree.num_tokens)
    at_once = gated_tree_attention(*operands, tree)
    monkeypatch.setattr("system1_torch.ops.gated_tree_attention.BLOCK", block)
    assert (gated_tree_attention(*operands, tree) - at_once).abs().max() < 1e-6


def test_attention_in_blocks_equals_attention_at_once(monkeypatch):
    tree = make_packed_tree([5, 40], [-1, 0])
    operands = attention_operands(45)
    at_once = gated_tree_attention(*operands, tree)
    monkeypatch.setattr("system1_torch.ops.gated_tree_attention.BLOCK", 7)
    assert (gated_tree_attention(*operands, tree) - at_once).abs().max() < 1e-6


@pytest.mark.parametrize(
    ("lengths", "parents"),
    [([], []), ([1, 0], [-1, 0]), ([1, 1], [-1, 1]), ([1, 1, 1], [-1, 0, -1]), ([1], [-1, 0])],
    ids=["nothing", "empty segment", "own parent", "out of order", "uneven"],
)
def test_a_malformed_tree_is_refused(lengths, parents):
    with pytest.raises(ValueError):
        make_packed_tree(lengths, parents)
