"""The fixed-point resize and the order of patches."""

import numpy as np
import pytest
import torch

from system1_torch.ops.image_patches import fixed_point_taps, image_patches
from system1_torch.testing import fresh_generator

SIZES = [(300, 256), (100, 704), (1, 32), (2, 3648), (33, 32), (1080, 576), (4000, 64), (7, 64)]


def noise(height, width, values=4):
    shape = (height, width, values)
    return torch.randint(256, shape, dtype=torch.uint8, generator=fresh_generator())


def resized(line, target):
    """What a kernel does with one axis of [lines, size] bytes."""
    size = line.shape[1]
    weights, first, bits = fixed_point_taps(size, target)
    total = np.full((line.shape[0], target), 1 << (bits - 1), dtype=np.int32)
    for tap in range(weights.shape[1]):
        # Beyond the end the weight is zero.
        places = np.minimum(first + tap, size - 1)
        total += weights[:, tap].astype(np.int32) * line[:, places].astype(np.int32)
    return np.clip(total >> bits, 0, 255).astype(np.uint8)


def picture_of(patches, rows, columns):
    """Planes [3, rows, columns] again, of patches of 16 in blocks of 2 x 2."""
    blocks = patches.view(rows // 32, columns // 32, 2, 2, 3, 16, 16)
    return blocks.permute(4, 0, 2, 5, 1, 3, 6).reshape(3, rows, columns)


@pytest.mark.parametrize(("size", "target"), SIZES)
@pytest.mark.parametrize("has_hard_edges", [False, True])
def test_taps_in_integers_give_the_references_bytes(size, target, has_hard_edges):
    pixels = noise(size, 70)
    if has_hard_edges:
        pixels = pixels.gt(127).byte() * 255
    found = picture_of(image_patches(pixels, target, 96, 16, 2), target, 96)
    for channel in range(3):
        across = resized(pixels[..., channel].numpy(), 96)
        down = resized(np.ascontiguousarray(across.T), target).T
        assert (found[channel].numpy() == down).all()


def test_a_side_that_keeps_its_size_is_not_touched():
    pixels = noise(64, 50)
    found = picture_of(image_patches(pixels, 64, 32, 16, 2), 64, 32)
    assert (found[1].numpy() == resized(pixels[..., 1].numpy(), 32)).all()


def test_weights_fill_16_bits_and_sum_to_one():
    for size, target in SIZES:
        weights, _, bits = fixed_point_taps(size, target)
        assert bits == 22 or 2**14 <= weights.max() < 2**15
        assert np.abs(weights.sum(1, dtype=np.int64) - 2**bits).max() <= weights.shape[1]


def test_a_fourth_value_has_no_meaning():
    pixels = noise(50, 60)
    other = pixels.clone()
    other[..., 3] = 7
    three = pixels[..., :3].contiguous()
    found = [image_patches(each, 64, 64, 16, 2) for each in (pixels, other, three)]
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_patches_go_block_by_block_and_channels_first():
    pixels = noise(64, 96, 3)
    patches = image_patches(pixels, 64, 96, 16, 2)
    assert patches.shape == (24, 768)
    corners = {1: (0, 16), 2: (16, 0), 4: (0, 32), 12: (32, 0)}
    for patch, (row, column) in corners.items():
        cut = pixels[row : row + 16, column : column + 16].permute(2, 0, 1)
        assert torch.equal(patches[patch], cut.flatten())


def test_a_side_that_holds_no_whole_blocks_is_an_error():
    with pytest.raises(ValueError, match="multiples of 32"):
        image_patches(noise(48, 64), 48, 64, 16, 2)
