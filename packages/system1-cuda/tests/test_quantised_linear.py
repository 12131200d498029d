"""Linear layers in FP8 against the reference: the same rounding, sums of other order."""

import pytest
import torch

from system1_cuda.build import load_kernels
from system1_cuda.quantised_linear import quantised_linear
from system1_torch.ops.quantised_linear import quantise_rows
from system1_torch.ops.quantised_linear import quantised_linear as reference
from system1_torch.testing import fresh_generator, poisoned, relative_error

pytestmark = pytest.mark.gpu
BF16 = torch.bfloat16


@pytest.fixture(autouse=True)
def _kernels():
    load_kernels()


@pytest.mark.parametrize("width", [64, 2560, 5120, 9216, 17_408])
@pytest.mark.parametrize("rows", [1, 3, 107])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, BF16])
def test_rows_are_quantised_as_the_reference_does(rows, width, dtype):
    x = poisoned((rows, width), generator=fresh_generator(), dtype=dtype, device="cuda")
    x[0, : width // 2] *= 50
    values, scales = torch.ops.system1.quantise_rows.default(x)
    expected, expected_scales = quantise_rows(x)
    torch.testing.assert_close(scales, expected_scales, rtol=1e-6, atol=0)
    differs = (values.float() != expected.float()).float().mean()
    # The scale's last bit may put quotients on the other side of a tie: 0.8 % of one row seen.
    assert differs < 0.03
    back = values.float() * scales[:, None]
    assert relative_error(back, x.float()) < 0.04


def test_a_row_of_zeros_stays_zero():
    values, scales = torch.ops.system1.quantise_rows.default(
        torch.zeros(2, 64, device="cuda", dtype=BF16)
    )
    assert not values.float().any()
    assert torch.isfinite(scales).all()


@pytest.mark.parametrize("rows", [1, 2, 15, 107, 160, 936])
@pytest.mark.parametrize(("width", "outputs"), [(2560, 4096), (5120, 16_384), (6144, 5120)])
def test_quantised_linear(rows, width, outputs):
    generator = fresh_generator()
    x = poisoned((rows, width), generator=generator, dtype=BF16, device="cuda")
    weight = torch.randn(outputs, width, generator=generator).cuda() * 0.02
    values, scales = quantise_rows(weight)
    found = quantised_linear(x, values, scales)
    expected = reference(x.float(), values, scales)
    assert relative_error(found, expected) < 1e-2


def test_a_view_of_rows_with_a_stride_is_taken():
    wide = torch.randn(40, 4096, device="cuda", dtype=BF16)
    values, scales = quantise_rows(torch.randn(64, 2048, device="cuda"))
    found = quantised_linear(wide[:, 2048:], values, scales)
    assert torch.equal(found, quantised_linear(wide[:, 2048:].contiguous(), values, scales))
