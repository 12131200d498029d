"""Images to patches: exact arithmetic, and a defined outcome for every hostile file."""

import hashlib
import io
import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from models_qwen3_5.images import (
    ImageLimits,
    ImageRefused,
    ImageSettings,
    decode_image,
    pixel_values,
    prepare_image,
    prepare_images,
    read_image_settings,
    smart_resize,
)
from system1_core.errors import CheckpointError
from system1_torch.ops.image_patches import image_patches

SETTINGS = ImageSettings()


def encoded(image, kind="PNG", **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def noise(width, height, mode="RGB", seed=0):
    shape = (height, width, len(Image.new(mode, (1, 1)).getbands()))
    values = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    return (
        Image.fromarray(values.squeeze(), mode=None)
        if mode == "L"
        else Image.frombytes(mode, (width, height), values.tobytes())
    )


def test_pixels_of_every_fixture_are_exact(images, image_questions):
    for question in image_questions:
        picture = decode_image((images / question["image"]).read_bytes())
        prepared = prepare_image(picture, SETTINGS)
        assert [1, *prepared.grid] == question["image_grid_thw"]
        values = pixel_values(prepared.patches).numpy()
        found = hashlib.sha256(values.tobytes()).hexdigest()
        if not question["image"].endswith(".jpg"):  # decoders may differ by 3 levels there
            assert found == question["pixel_values_sha256"], question["image"]


@pytest.mark.parametrize(
    ("height", "width", "expected"),
    [
        (1080, 1920, (1088, 1920)),
        (256, 256, (256, 256)),
        (1, 1, (256, 256)),
        (16, 16, (256, 256)),
        (48, 400, (96, 768)),
        (8000, 8000, (4096, 4096)),
        (5, 1000, (32, 3648)),
    ],
)
def test_sizes_are_multiples_of_32_between_the_bounds(height, width, expected):
    assert smart_resize(height, width, SETTINGS) == expected


def test_sizes_follow_a_smaller_budget():
    budget = ImageSettings(max_pixels=602_112)
    for size in ((1080, 1920), (900, 1600), (720, 1280)):
        assert smart_resize(*size, budget) == (576, 1024)


def exact_bicubic(line, size):
    """One axis of the reference's fixed-point resize, written out."""
    n = len(line)
    scale = n / size
    stretch = max(scale, 1.0)

    def kernel(x):
        x = abs(x)
        if x < 1:
            return (1.5 * x - 2.5) * x * x + 1
        return ((-0.5 * x + 2.5) * x - 4) * x + 2 if x < 2 else 0.0

    spans, table = [], []
    for i in range(size):
        centre = scale * (i + 0.5)
        low = max(0, int(centre - 2 * stretch + 0.5))
        high = min(n, int(centre + 2 * stretch + 0.5))
        weights = [kernel((j - centre + 0.5) / stretch) for j in range(low, high)]
        spans.append((low, high))
        table.append([weight / sum(weights) for weight in weights])
    largest = max(max(weights) for weights in table)
    bits = max(p for p in range(23) if int(0.5 + largest * 2**p) < 2**15)
    out = []
    for (low, high), weights in zip(spans, table, strict=True):
        whole = [int(w * 2**bits + (0.5 if w >= 0 else -0.5)) for w in weights]
        total = 2 ** (bits - 1) + sum(
            w * int(v) for w, v in zip(whole, line[low:high], strict=True)
        )
        out.append(min(255, max(0, total >> bits)))
    return out


@pytest.mark.parametrize(("width", "height"), [(300, 256), (100, 700), (1024, 70)])
def test_resize_is_the_fixed_point_arithmetic_of_the_contract(width, height):
    picture = noise(width, height)
    rows, columns = smart_resize(height, width, SETTINGS)
    pixels = np.asarray(picture)[..., 0]
    across = np.array([exact_bicubic(line, columns) for line in pixels])
    both = np.array([exact_bicubic(line, rows) for line in across.T]).T
    patches = prepare_image(picture, SETTINGS).patches
    blocks = patches.view(rows // 32, columns // 32, 2, 2, 3, 16, 16)
    found = blocks.permute(4, 0, 2, 5, 1, 3, 6).reshape(3, rows, columns)[0].numpy()
    assert (found == both).all()


def test_patches_go_block_by_block_and_channels_first():
    values = torch.arange(256 * 256 * 3).reshape(256, 256, 3).remainder(251).byte()
    patches = prepare_image(Image.fromarray(values.numpy()), SETTINGS).patches
    assert patches.shape == (256, 768)
    second = values[:16, 16:32].permute(2, 0, 1).flatten()
    third = values[16:32, :16].permute(2, 0, 1).flatten()
    fifth = values[:16, 32:48].permute(2, 0, 1).flatten()
    assert torch.equal(patches[1], second)
    assert torch.equal(patches[2], third)
    assert torch.equal(patches[4], fifth)


def test_pixel_values_repeat_a_still_in_time_from_minus_one_to_one():
    patches = torch.tensor([[0] * 256 + [255] * 256 + [128] * 256], dtype=torch.uint8)
    values = pixel_values(patches).view(3, 2, 256)
    assert values[0].eq(-1).all()
    assert values[1].eq(1).all()
    assert values[2].eq(torch.tensor(0.5 / 127.5)).all()


def test_equal_pixels_have_one_digest_and_others_another():
    one, same, other = (prepare_image(noise(64, 64, seed=s), SETTINGS) for s in (0, 0, 1))
    assert one.digest == same.digest != other.digest
    assert one.number == same.number < 0


ON_DEVICE = replace(SETTINGS, on_device=True)


def test_a_picture_for_the_device_carries_its_pixels_and_its_grid():
    picture = noise(300, 200)
    there, here = (prepare_image(picture, each) for each in (ON_DEVICE, SETTINGS))
    assert there.patches is None
    assert (there.grid, there.num_tokens) == (here.grid, here.num_tokens)
    rows, columns = (16 * side for side in there.grid)
    assert torch.equal(image_patches(there.pixels, rows, columns, 16, 2), here.patches)


def test_equal_pictures_for_the_device_share_a_digest_and_others_do_not():
    one, same, other = (prepare_image(noise(900, 700, seed=s), ON_DEVICE) for s in (0, 0, 1))
    assert one.digest == same.digest != other.digest
    smaller = replace(ON_DEVICE, max_pixels=100_000)
    assert prepare_image(noise(900, 700), smaller).digest != one.digest


@pytest.mark.parametrize("settings", [SETTINGS, ON_DEVICE], ids=["patches", "pixels"])
def test_a_file_stands_for_its_pixels(settings):
    picture, files = noise(320, 256), [b"one file", b"another"]
    one, same = (prepare_image(picture, settings, files[0]).digest for _ in range(2))
    other = prepare_image(picture, settings, files[1]).digest
    smaller = prepare_image(picture, replace(settings, max_pixels=70_000), files[0]).digest
    assert one == same
    assert len({one, other, smaller, prepare_image(picture, settings).digest}) == 4


def test_the_same_values_in_another_shape_have_another_digest():
    content = noise(256, 512).tobytes()
    pictures = (Image.frombytes("RGB", size, content) for size in ((256, 512), (512, 256)))
    first, second = (prepare_image(picture, ON_DEVICE).digest for picture in pictures)
    assert first != second


def test_a_huge_picture_is_resized_on_the_host():
    picture = Image.new("RGB", (4200, 4200))
    prepared = prepare_image(picture, replace(ON_DEVICE, max_pixels=100_000))
    assert prepared.pixels is None
    assert prepared.patches is not None


def test_many_files_are_prepared_in_their_order():
    files = [encoded(noise(64, 64, seed=seed)) for seed in range(12)]
    alone = [prepare_image(decode_image(data), SETTINGS, data).digest for data in files]
    assert [image.digest for image in prepare_images(files, SETTINGS)] == alone


def test_of_many_files_the_first_unsound_one_is_refused_in_its_turn():
    files = [encoded(noise(64, 64)), b"no", encoded(noise(8, 8), "GIF")]
    images = prepare_images(files, SETTINGS)
    assert next(images).num_tokens == 64
    with pytest.raises(ImageRefused, match="neither a PNG nor a JPEG"):
        next(images)


def png_chunk(kind, body):
    crc = zlib.crc32(kind + body)
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", crc)


def png_bomb(side):
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    body = png_chunk(b"IDAT", zlib.compress(b"\0" * 1000))
    return b"\x89PNG\r\n\x1a\n" + header + body + png_chunk(b"IEND", b"")


REFUSED = {
    "empty": (b"", "neither a PNG nor a JPEG"),
    "text": (b"hello", "neither a PNG nor a JPEG"),
    "gif": (encoded(noise(8, 8), "GIF"), "neither a PNG nor a JPEG"),
    "truncated png": (encoded(noise(64, 64))[:2000], "not a sound image"),
    "truncated jpeg": (encoded(noise(64, 64), "JPEG")[:700], "not a sound image"),
    "header only": (encoded(noise(64, 64))[:33], "not a sound image|neither"),
    "bomb": (png_bomb(60_000), "pixels"),
    "bomb below the side limit": (png_bomb(9_000), "81000000 pixels, limit 67108864"),
    "promises more than it holds": (png_bomb(512), "not a sound image"),
    "animated": (
        encoded(noise(8, 8), save_all=True, append_images=[noise(8, 8, seed=1)]),
        "2 frames, limit 1",
    ),
    "too wide": (encoded(Image.new("RGB", (201, 1))), "over 200 times"),
    "too high": (encoded(Image.new("L", (1, 300))), "over 200 times"),
}


@pytest.mark.parametrize(("data", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_a_hostile_image_is_refused_with_a_reason(data, message):
    with pytest.raises(ImageRefused, match=message):
        decode_image(data)


def test_a_file_over_the_byte_limit_is_not_opened():
    data = encoded(noise(64, 64))
    with pytest.raises(ImageRefused, match=f"{len(data)} bytes, limit 100"):
        decode_image(data, ImageLimits(max_bytes=100))


def phone_picture():
    return encoded(noise(40, 20), "MPO", save_all=True, append_images=[noise(40, 20, seed=1)])


def test_of_a_phones_two_pictures_the_first_is_read():
    first = decode_image(encoded(noise(40, 20), "JPEG"))
    assert decode_image(phone_picture()).tobytes() == first.tobytes()


def test_a_phones_two_pictures_are_refused_where_one_is_asked_for():
    with pytest.raises(ImageRefused, match="2 frames, limit 1"):
        decode_image(phone_picture(), ImageLimits(single_picture=True))


def see_through_palette():
    picture = noise(40, 40).quantize(16)
    picture.info["transparency"] = bytes(range(0, 256, 16))
    return encoded(picture)


def sixteen_bit():
    values = np.array([[0, 200, 256, 65535]], dtype=np.uint16).repeat(4, 0)
    return encoded(Image.fromarray(values))


ACCEPTED = {
    "one pixel": encoded(Image.new("RGB", (1, 1), (1, 2, 3))),
    "cmyk": encoded(Image.new("CMYK", (40, 40), (0, 255, 0, 0)), "JPEG"),
    "grey": encoded(noise(40, 40, "L")),
    "palette": encoded(noise(40, 40).quantize(16)),
    "palette with alpha": see_through_palette(),
    "bilevel": encoded(noise(40, 40, "L").convert("1")),
    "sixteen bit": sixteen_bit(),
    "200 to 1": encoded(Image.new("RGB", (200, 1))),
}


@pytest.mark.parametrize("data", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_an_odd_but_sound_image_is_prepared(data):
    picture = decode_image(data)
    assert picture.mode == "RGB"
    assert prepare_image(picture, SETTINGS).num_tokens >= 64


def test_alpha_is_dropped_and_not_blended():
    picture = decode_image(encoded(Image.new("RGBA", (4, 4), (10, 20, 30, 0))))
    assert picture.getpixel((0, 0)) == (10, 20, 30)


def test_exif_orientation_is_not_applied():
    exif = Image.Exif()
    exif[0x0112] = 6
    picture = decode_image(encoded(noise(40, 20), "JPEG", exif=exif))
    assert picture.size == (40, 20)


def test_settings_come_from_either_file(base, tmp_path):
    assert read_image_settings(base) == SETTINGS
    text = (base / "preprocessor_config.json").read_text()
    (tmp_path / "processor_config.json").write_text(f'{{"image_processor": {text}}}')
    assert read_image_settings(tmp_path) == SETTINGS


@pytest.mark.parametrize(
    "text",
    [
        None,
        "[]",
        "{}",
        '{"size": {"shortest_edge": 1, "longest_edge": -1}, "patch_size": 16, "merge_size": 2}',
        '{"size": {"shortest_edge": 1, "longest_edge": 9}, "patch_size": 16, "merge_size": 2,'
        ' "image_mean": [0.4, 0.5, 0.5]}',
    ],
    ids=["missing", "list", "empty", "negative", "other mean"],
)
def test_unusable_settings_are_an_error_that_names_the_file(text, tmp_path):
    if text is not None:
        (tmp_path / "preprocessor_config.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"preprocessor_config\.json"):
        read_image_settings(tmp_path)
