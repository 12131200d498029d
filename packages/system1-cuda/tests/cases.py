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


# Segments, parents: what the kernels over a whole tree are tried on.
DEEP_TREES = {
    **TREES,
    "chunk-edges": ([63, 64, 65, 128, 129], [-1, -1, -1, -1, -1]),
    "long-lone": ([700], [-1]),
    "shared-state": ([300, 40, 41, 1, 64, 130], [-1, 0, 0, 0, 0, 0]),
    "four-levels": ([70, 5, 64, 3, 129, 2], [-1, 0, 1, 1, 3, 4]),
}


def rule_inputs(tree, generator, dtype, device, *, key_heads=2, value_heads=6):
    """q, k of unit length, v, g, beta and the tree, 128 wide."""
    lengths, parents = tree
    count = sum(lengths)

    def made(*shape, to=dtype):
        return poisoned((count, *shape), generator=generator, dtype=to, device=device)

    q, k = (made(key_heads, 128, to=torch.float32) for _ in range(2))
    for x in (q, k):
        x.div_(x.norm(dim=-1, keepdim=True))
    q.mul_(128**-0.5)
    for x in (q, k):
        # The kernel rounds them to 16 bits; a lone token's answer hangs on one product of theirs.
        x.copy_(x.to(dtype))
    v, beta = made(value_heads, 128), made(value_heads).sigmoid_()
    g = made(value_heads, to=torch.float32)
    g.copy_(-g.abs() * 0.3)
    return [q, k, v, g, beta, make_packed_tree(lengths, parents, device=device)]


def tree_attention_inputs(tree, generator, dtype, device, *, width=256, heads=4, key_heads=2):
    """q and its gate as views of one projection, k and v of another, and the tree."""
    lengths, parents = tree
    count = sum(lengths)
    both = poisoned((count, heads, 2, width), generator=generator, dtype=dtype, device=device)
    pair = poisoned((count, 2, key_heads, width), generator=generator, dtype=dtype, device=device)
    q, gate = both.unbind(2)
    k, v = pair.unbind(1)
    return [q, k, v, gate, make_packed_tree(lengths, parents, device=device)]


def pixels_of(height, width, generator, device="cpu"):
    """A picture of noise, [H, W, 4] uint8."""
    shape = (height, width, 4)
    return torch.randint(256, shape, dtype=torch.uint8, generator=generator).to(device)


def image_attention_inputs(lengths, generator, dtype, device, *, heads=HEADS, width=64):
    """q and k as parts of one tensor, v as a view of a projection, lengths on the host."""
    shape = (sum(lengths), 2 * heads, width)
    turned = poisoned(shape, generator=generator, dtype=dtype, device=device)
    v = head_rows(lengths, generator, dtype, device, heads=heads, width=width)
    return [*turned.split(heads, dim=1), v, lengths]


def linear_gelu_inputs(lengths, generator, dtype, device, *, width=WIDTH, wide=2 * WIDTH):
    x = poisoned((sum(lengths), width), generator=generator, dtype=dtype, device=device)
    weight = poisoned((wide, width), generator=generator, dtype=dtype, device=device, scale=0.1)
    return [x, weight, vector(generator, wide, dtype, device)]
