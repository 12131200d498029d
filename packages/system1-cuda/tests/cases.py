"""Inputs of every operation for ragged batches, shared by the CPU and the GPU tests."""

import torch

from system1_torch.packed_tree import make_packed_tree
from system1_torch.testing import cu_seqlens_of, poisoned

EPS = 1e-5
WIDTH = 96
HEADS = 3


def vector(generator, width, dtype, device):
    return poisoned((width,), generator=generator, dtype=dtype, device=device)


def norm_inputs(lengths, generator, dtype, device, *, width=WIDTH, wide=False, has_bias=True):
    """x, weight, bias, eps; with `wide` the parameters are in float32."""
    x = poisoned((sum(lengths), width), generator=generator, dtype=dtype, device=device)
    parameter_dtype = torch.float32 if wide else dtype
    weight, bias = (vector(generator, width, parameter_dtype, device) for _ in range(2))
    return [x, weight, bias if has_bias else None, EPS]


def head_rows(lengths, generator, dtype, device, *, heads=HEADS, width=64):
    """A view of every third group of heads of a larger projection, [T, H, K]."""
    shape = (sum(lengths), 3 * heads * width)
    rows = poisoned(shape, generator=generator, dtype=dtype, device=device)
    return rows.view(-1, 3, heads, width)[:, 1]


def rotary_inputs(lengths, generator, dtype, device, *, width=64, half=32):
    angles = torch.rand(sum(lengths), half, generator=generator) * 100
    x = head_rows(lengths, generator, dtype, device, width=width)
    return [x, angles.cos().to(device), angles.sin().to(device)]


def attention_inputs(lengths, window, generator, dtype, device, *, heads=HEADS):
    q, k, v = (head_rows(lengths, generator, dtype, device, heads=heads) for _ in range(3))
    return [q, k, v, cu_seqlens_of(lengths, device), max(lengths), window]


TREES = {
    "one-token": ([1], [-1]),
    "lone": ([100], [-1]),
    "side-by-side": ([3, 70, 1], [-1, -1, -1]),
    "branches": ([65, 1, 9, 64], [-1, 0, 0, 0]),
    "one-token-prefix": ([1, 5, 2], [-1, 0, 0]),
    "three-levels": ([4, 7, 3, 5, 2, 1], [-1, -1, 0, 0, 2, 3]),
}


def norm_rope_inputs(lengths, generator, dtype, device, *, width=64, turned=32):
    """x as a view, weight, cos, sin, eps."""
    x = head_rows(lengths, generator, dtype, device, width=width)
    angles = torch.rand(sum(lengths), turned // 2, generator=generator).repeat(1, 2) * 100
    cos, sin = (table.to(device=device, dtype=dtype) for table in (angles.cos(), angles.sin()))
    return [x, vector(generator, width, dtype, device), cos, sin, EPS]


def delta_operands(tree, generator, dtype, device, *, width=64, key_heads=2, value_heads=4):
    """Views of one projection [qkv | z | b | a], and the layer's weights."""
    lengths, parents = tree
    channels = (2 * key_heads + value_heads) * width
    widths = [channels, value_heads * width, value_heads, value_heads]
    # Rows begin at 16 bytes.
    widths.append(-sum(widths) % 8)
    shape = (sum(lengths), sum(widths))
    rows = poisoned(shape, generator=generator, dtype=dtype, device=device)
    qkv, _, b, a, _ = rows.split(widths, dim=1)
    conv_weight = poisoned((channels, 4), generator=generator, dtype=dtype, device=device)
    A_log, dt_bias = (vector(generator, value_heads, dtype, device) for _ in range(2))
    packed = make_packed_tree(lengths, parents, device=device)
    return [qkv, b, a, conv_weight, A_log, dt_bias, packed, key_heads, width]
