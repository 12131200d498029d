"""The kernel test kit finds what it is there to find."""

import pytest
import torch

from system1_torch.testing import (
    check_kernel,
    cu_seqlens_of,
    fresh_generator,
    poisoned,
    relative_error,
)


def halved(x):
    return x * 0.5


def make(dtype=torch.float32):
    generator = fresh_generator()
    return generator, poisoned((5, 8), generator=generator, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_an_exact_kernel_passes(dtype):
    generator, x = make(dtype)
    assert check_kernel(halved, halved, [x], generator=generator) <= 1e-7


def test_a_wrong_kernel_fails_and_names_its_seed():
    generator, x = make()
    with pytest.raises(AssertionError, match=f"seed {generator.initial_seed()}"):
        check_kernel(lambda x: x * 0.51, halved, [x], generator=generator)


def test_reading_past_the_rows_fails():
    generator, x = make()

    def reads_on(x):
        longer = x.as_strided((6, 8), (8, 1), x.storage_offset())
        return halved(x) + 0 * longer[5]

    with pytest.raises(AssertionError, match="relative error inf"):
        check_kernel(reads_on, halved, [x], generator=generator)


def test_an_unwritten_output_fails():
    generator, x = make()

    def forgets(x):
        out = torch.full_like(x, torch.nan)
        out[:4] = x[:4] * 0.5
        return out

    with pytest.raises(AssertionError, match="relative error inf"):
        check_kernel(forgets, halved, [x], generator=generator)


def test_changing_an_input_fails_unless_declared():
    generator, x = make()

    def in_place(x):
        out = x * 0.5
        x.zero_()
        return out

    with pytest.raises(AssertionError, match="input 0 was changed"):
        check_kernel(in_place, halved, [x.clone()], generator=generator)
    check_kernel(in_place, halved, [x.clone()], generator=generator, written=[0])


def test_errors_are_relative_to_the_expected_length():
    assert relative_error(torch.tensor([3.0, 4.4]), torch.tensor([3.0, 4.0])) == pytest.approx(0.08)
    assert relative_error(torch.zeros(3), torch.zeros(3)) == 0.0
    with pytest.raises(AssertionError, match="shape"):
        relative_error(torch.zeros(3), torch.zeros(1, 3))


def test_cumulative_lengths_begin_at_zero():
    found = cu_seqlens_of([2, 0, 5])
    assert found.tolist() == [0, 2, 2, 7]
    assert found.dtype == torch.int32
