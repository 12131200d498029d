"""The tower's tables, groups and graphs: kept, bounded, and no other rows than an eager pass."""

from dataclasses import replace

import pytest
import torch
from PIL import Image

from models_qwen3_5.images import ImageSettings, PreparedImage, prepare_image
from models_qwen3_5.ops import Ops
from models_qwen3_5.vision_graphs import MAX_PATCHES, VisionGraphs, patch_groups
from models_qwen3_5.vision_tables import TableCache

SETTINGS = ImageSettings(min_pixels=1024)


def picture(grid, seed):
    shape = (grid[0] * grid[1], 768)
    generator = torch.Generator().manual_seed(seed)
    return PreparedImage(torch.randint(256, shape, dtype=torch.uint8, generator=generator), grid)


def close(found, expected):
    return torch.allclose(found.float().cpu(), expected.float().cpu(), rtol=1e-4, atol=1e-4)


def test_images_together_have_the_rows_they_have_alone(backbone):
    images = [picture((4, 6), 0), picture((2, 2), 1), picture((4, 6), 2), picture((2, 2), 1)]
    together = backbone.image_features(images)
    for image, rows in zip(images, together, strict=True):
        assert rows.shape[0] == image.num_tokens
        assert close(rows, backbone.image_features([image])[0])


def test_pixels_give_the_rows_of_their_patches(backbone):
    shot = Image.effect_noise((150, 90), 90).convert("RGB")
    here, there = (
        prepare_image(shot, replace(SETTINGS, on_device=on_device)) for on_device in (False, True)
    )
    assert there.pixels is not None
    rows = [backbone.image_features([image])[0] for image in (here, there)]
    assert torch.equal(*rows)


def test_an_op_of_the_backend_resizes(backbone):
    calls = []

    def resize(pixels, rows, columns, patch_size, merge_size):
        calls.append((tuple(pixels.shape), rows, columns, patch_size, merge_size))
        return Ops().image_patches(pixels, rows, columns, patch_size, merge_size)

    image = prepare_image(Image.new("RGB", (100, 70)), replace(SETTINGS, on_device=True))
    VisionGraphs(backbone.vision, Ops(image_patches=resize)).features([image])
    assert calls == [((70, 100, 4), 64, 96, 16, 2)]


def test_tables_of_a_grid_are_made_once(backbone):
    first, second = (backbone.vision.tables([(6, 4)]) for _ in range(2))
    assert first.positions is second.positions
    assert first.cos is second.cos


def test_the_least_recently_used_tables_are_given_up(backbone):
    weight = backbone.vision.pos_embed["weight"]
    cache = TableCache(backbone.config.vision, max_patches=50)
    for grid in ((4, 4), (4, 6), (4, 4), (2, 8)):
        cache.tables([grid], weight)
    assert (4, 6) not in cache
    assert (4, 4) in cache
    assert (2, 8) in cache
    cache.tables([(10, 10)], weight)
    assert (4, 4) not in cache
    assert (10, 10) in cache


def test_groups_hold_a_bounded_number_of_patches_and_keep_the_order():
    side = 96
    images = [picture((side, side), n) for n in range(3)] + [picture((2, 2), 9)]
    groups = patch_groups(images)
    assert [image.digest for group in groups for image in group] == [i.digest for i in images]
    assert len(groups) == 3
    assert all(sum(i.num_patches for i in group) <= MAX_PATCHES for group in groups)


def test_a_cpu_wishes_for_no_graphs(backbone):
    graphs = VisionGraphs(backbone.vision, backbone.ops)
    for _ in range(3):
        graphs.features([picture((2, 2), 0)])
    assert not graphs.capture_next()


class Recorded(VisionGraphs):
    """Stands on a device that has graphs, and keeps what would be captured."""

    def __init__(self, tower):
        super().__init__(tower, Ops())
        self._device = torch.device("cuda")
        self._graphs = self
        self.keys = []
        self.is_full = False

    def __contains__(self, key):
        return key in self.keys

    def capture(self, key, example):
        if not self.is_full:
            self.keys.append(key)
        return not self.is_full

    def __call__(self, key, inputs):
        return self._run(key, inputs)


def test_grids_seen_twice_are_captured_when_asked_in_whatever_order(backbone):
    graphs = Recorded(backbone.vision)
    graphs.features([picture((2, 2), 0), picture((2, 4), 1)])
    assert not graphs.capture_next()
    graphs.features([picture((2, 4), 2), picture((2, 2), 3)])
    assert graphs.keys == []
    assert graphs.capture_next()
    assert graphs.keys == [((2, 2), (2, 4))]
    assert not graphs.capture_next()


def test_captured_grids_give_the_same_rows(backbone):
    graphs = Recorded(backbone.vision)
    images = [picture((2, 4), 0), picture((2, 2), 1)]
    before = graphs.features(images)
    graphs.features(images)
    assert graphs.capture_next()
    for found, expected in zip(graphs.features(images), before, strict=True):
        assert torch.equal(found, expected)


def test_grids_known_before_can_be_wished_for(backbone):
    graphs = Recorded(backbone.vision)
    graphs.wish([(2, 4), (2, 2)])
    assert graphs.capture_next()
    assert graphs.keys == [((2, 2), (2, 4))]


def test_deterministic_images_run_alone_and_without_graphs(backbone):
    graphs = Recorded(backbone.vision)
    graphs.is_deterministic = True
    images = [picture((2, 4), 0), picture((2, 2), 1)]
    for _ in range(3):
        together = graphs.features(images)
        assert not graphs.capture_next()
    for image, rows in zip(images, together, strict=True):
        assert torch.equal(graphs.features([image])[0], rows)


def test_over_the_budget_wishes_are_dropped(backbone):
    graphs = Recorded(backbone.vision)
    graphs.is_full = True
    for _ in range(2):
        graphs.features([picture((2, 2), 0)])
        graphs.features([picture((2, 4), 0)])
    assert not graphs.capture_next()
    graphs.is_full = False
    assert not graphs.capture_next()


@pytest.mark.gpu
def test_a_replayed_graph_gives_the_rows_of_an_eager_pass(backbone):
    from copy import deepcopy

    graphs = VisionGraphs(deepcopy(backbone.vision).cuda(), Ops())
    images = [picture((8, 6), 0), picture((8, 6), 1)]
    eager = graphs.features(images)
    graphs.features(images)
    assert graphs.capture_next()
    other = graphs.features([picture((8, 6), 5), picture((8, 6), 6)])
    for found, expected in zip(graphs.features(images), eager, strict=True):
        assert close(found, expected)
    assert not close(other[0], eager[0])
    graphs.close()


@pytest.mark.gpu
def test_rows_of_several_groups_are_not_overwritten(backbone, monkeypatch):
    from copy import deepcopy

    monkeypatch.setattr("models_qwen3_5.vision_graphs.MAX_PATCHES", 48)
    graphs = VisionGraphs(deepcopy(backbone.vision).cuda(), Ops())
    images = [picture((8, 6), seed) for seed in range(3)]
    eager = graphs.features(images)
    assert graphs.capture_next()
    for found, expected in zip(graphs.features(images), eager, strict=True):
        assert close(found, expected)
    graphs.close()
