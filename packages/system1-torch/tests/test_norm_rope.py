"""Norm and rotary positions of a head, in one step."""

import torch

from system1_torch.ops.norm_rope import norm_rope
from system1_torch.ops.rms_norm import rms_norm


def test_norm_rope_turns_pairs_and_leaves_the_rest():
    x, weight = torch.randn(3, 2, 8), torch.randn(8)
    angle = torch.tensor([0.0, 0.5, 2.0])[:, None].expand(-1, 2).repeat(1, 2)
    out = norm_rope(x, weight, angle.cos(), angle.sin(), 1e-6)
    plain = rms_norm(x, weight, 1e-6, 1.0)
    turned = torch.complex(plain[..., :2], plain[..., 2:4]) * torch.polar(
        torch.ones(3, 1, 2), angle[:, None, :2]
    )
    assert torch.allclose(out[..., :2], turned.real, atol=1e-6)
    assert torch.allclose(out[..., 2:4], turned.imag, atol=1e-6)
    assert torch.equal(out[..., 4:], plain[..., 4:])
