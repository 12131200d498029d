"""What a vision tower needs on CUDA: resize byte for byte, attention among patches, GELU."""

import pytest
import torch
from cases import image_attention_inputs, linear_gelu_inputs, pixels_of

from system1_cuda.build import load_kernels
from system1_cuda.offered import OPS
from system1_torch.ops import image_attention as attention
from system1_torch.ops import image_patches as resize
from system1_torch.ops.linear_gelu import linear_gelu
from system1_torch.testing import check_kernel, fresh_generator

pytestmark = pytest.mark.gpu
DEVICE = "cuda"
NARROW = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
# Height, width, then the size asked for.
SIZES = {
    "screenshot": (1080, 1920, 576, 1024),
    "as-it-is": (800, 1280, 800, 1280),
    "across-only": (64, 1000, 64, 512),
    "down-only": (1000, 64, 512, 64),
    "enlarged": (17, 33, 256, 320),
    "one-pixel": (1, 1, 256, 256),
    "one-line": (1, 200, 32, 3648),
    "one-column": (300, 1, 2048, 32),
    "shrunk-much": (4000, 3000, 64, 96),
}


@pytest.fixture(scope="module", autouse=True)
def _kernels():
    load_kernels()


@pytest.fixture
def generator():
    return fresh_generator()


@pytest.fixture
def _only_kernels(monkeypatch):
    def refuse(*_):
        raise AssertionError("went to the reference")

    monkeypatch.setattr(
        "system1_cuda.image_patches.reference", type("R", (), {"__getattr__": refuse})()
    )


def same_bytes(pixels, rows, columns, patch_size=16, merge_size=2):
    expected = resize.image_patches(pixels, rows, columns, patch_size, merge_size)
    found = OPS["image_patches"](pixels.to(DEVICE), rows, columns, patch_size, merge_size)
    return found.is_cuda and torch.equal(found.cpu(), expected)


@pytest.mark.usefixtures("_only_kernels")
@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_patches_are_the_hosts_byte_for_byte(size, generator):
    height, width, rows, columns = size
    assert same_bytes(pixels_of(height, width, generator), rows, columns)


@pytest.mark.usefixtures("_only_kernels")
def test_patches_of_random_sizes_are_the_hosts_byte_for_byte(generator):
    for _ in range(60):
        height, width = torch.randint(1, 700, (2,), generator=generator).tolist()
        rows, columns = (32 * torch.randint(1, 20, (2,), generator=generator)).tolist()
        assert same_bytes(pixels_of(height, width, generator), rows, columns), (
            height, width, rows, columns, generator.initial_seed(),
        )  # fmt: skip


@pytest.mark.usefixtures("_only_kernels")
def test_hard_edges_overshoot_as_on_the_host(generator):
    pixels = pixels_of(333, 555, generator).gt(127).byte() * 255
    assert same_bytes(pixels, 512, 416)


@pytest.mark.usefixtures("_only_kernels")
@pytest.mark.parametrize("patch", [(16, 1), (8, 2), (4, 4)], ids=str)
def test_other_patches_and_blocks(patch, generator):
    assert same_bytes(pixels_of(70, 90, generator), 128, 160, *patch)


def test_pixels_of_three_values_go_to_the_host(generator):
    assert same_bytes(pixels_of(70, 90, generator)[..., :3].contiguous(), 64, 96)


@NARROW
@pytest.mark.parametrize("lengths", [(1,), (256,), (64, 64, 64), (300, 300, 77)], ids=str)
@pytest.mark.parametrize("is_recurring", [False, True], ids=["once", "recurring"])
@pytest.mark.parametrize("width", [64, 72])
def test_image_attention(dtype, lengths, is_recurring, width, generator):
    inputs = image_attention_inputs(lengths, generator, dtype, DEVICE, width=width)

    def kernel(*args):
        return OPS["image_attention"](*args, is_recurring=is_recurring)

    tolerance = 2e-3 if dtype == torch.float16 else 1e-2
    check_kernel(
        kernel, attention.image_attention, inputs, generator=generator, tolerance=tolerance
    )


def test_recurring_attention_can_be_captured(generator):
    inputs = image_attention_inputs((200, 200), generator, torch.bfloat16, DEVICE)
    expected = OPS["image_attention"](*inputs, is_recurring=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = OPS["image_attention"](*inputs, is_recurring=True)
    graph.replay()
    assert torch.equal(found, expected)


@NARROW
@pytest.mark.parametrize("rows", [2, 7, 64, 1000])
def test_linear_gelu(dtype, rows, generator):
    inputs = linear_gelu_inputs((rows,), generator, dtype, DEVICE)
    check_kernel(OPS["linear_gelu"], linear_gelu, inputs, generator=generator)
