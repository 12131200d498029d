"""Mosaics of video frames: drawing, and how ffmpeg is asked."""

import io
import json
import os
import stat
import sys

import numpy as np
import pytest
from conftest import CASES, image_bytes
from PIL import Image, ImageFont

from models_omnijev import mosaic
from models_omnijev.mosaic import MosaicFailed, draw_mosaic, main, make_mosaic

PROGRAM = """#!{python}
import io, json, sys
from PIL import Image
with open({log!r}, "a") as log:
    log.write(json.dumps([{name!r}, *sys.argv[1:]]) + "\\n")
if {name!r} == "ffprobe":
    print({duration!r})
elif float(sys.argv[sys.argv.index("-ss") + 1]) < {fails_before!r}:
    sys.exit(1)
else:
    file = io.BytesIO()
    Image.new("RGB", (64, 32), (200, 0, 0)).save(file, "JPEG")
    sys.stdout.buffer.write(file.getvalue())
"""


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Stand-ins for ffprobe and ffmpeg that note how they were called."""
    log = tmp_path / "calls"

    def install(duration="8.0", fails_before=0.0):
        for name in ("ffprobe", "ffmpeg"):
            file = tmp_path / name
            text = PROGRAM.format(
                python=sys.executable,
                name=name,
                log=str(log),
                duration=duration,
                fails_before=fails_before,
            )
            file.write_text(text)
            file.chmod(file.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    install.calls = lambda: [json.loads(line) for line in log.read_text().splitlines()]
    return install


@pytest.fixture
def few_frames(monkeypatch):
    """Each call of a program takes a while."""
    monkeypatch.setattr(mosaic, "N_FRAMES", 3)


@pytest.mark.usefixtures("few_frames")
def test_frames_are_sampled_in_the_middle_of_even_spans(programs, tmp_path):
    programs()
    jpeg, video = make_mosaic(tmp_path / "film.mp4")
    assert video.timestamps == (1, 4, 7)
    assert (video.n_frames, video.cols, video.tile, video.duration) == (3, 4, 384, 8.0)
    assert Image.open(io.BytesIO(jpeg)).size == (4 * 384, 384)
    seeks = [call[call.index("-ss") + 1] for call in programs.calls() if call[0] == "ffmpeg"]
    assert seeks == ["1.333", "4.000", "6.667"]
    for call in programs.calls()[1:]:
        assert call.index("-ss") < call.index("-i")
        assert call[call.index("-q:v") + 1] == "3"


@pytest.mark.usefixtures("few_frames")
def test_a_frame_that_fails_repeats_the_one_before_and_black_comes_first(programs, tmp_path):
    programs(fails_before=3.0)
    jpeg, _ = make_mosaic(tmp_path / "film.mp4")
    picture = Image.open(io.BytesIO(jpeg)).convert("RGB")
    assert max(picture.getpixel((192, 192))) < 20
    assert picture.getpixel((384 + 192, 192))[0] > 180


def test_less_than_a_second_is_refused(programs, tmp_path):
    programs(duration="0.9")
    with pytest.raises(MosaicFailed, match="at least 1 s"):
        make_mosaic(tmp_path / "film.mp4")


def test_what_is_no_video_is_refused(programs, tmp_path):
    programs(duration="N/A")
    with pytest.raises(MosaicFailed, match="is it a video file"):
        make_mosaic(tmp_path / "film.mp4")


def test_a_missing_program_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MosaicFailed, match="install ffmpeg"):
        make_mosaic(tmp_path / "film.mp4")


@pytest.mark.usefixtures("few_frames")
def test_the_command_writes_the_mosaic_and_prints_the_state(programs, tmp_path, capsys):
    programs()
    main([str(tmp_path / "film.mp4"), str(tmp_path / "out.jpg")])
    printed = json.loads(capsys.readouterr().out)
    assert printed["timestamps"] == [1, 4, 7]
    assert (tmp_path / "out.jpg").read_bytes().startswith(b"\xff\xd8")
    assert set(printed) == {"n_frames", "cols", "tile", "timestamps", "duration"}


def test_the_command_fails_with_a_message(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match="ffprobe: not found"):
        main(["film.mp4", "out.jpg"])


def test_a_frame_keeps_its_aspect_in_a_black_square():
    tall = Image.new("RGB", (100, 300), (255, 255, 255))
    tile = draw_mosaic([tall], [3], cols=1, tile=90)
    row = np.asarray(tile)[60, :, 0]
    assert np.flatnonzero(row).tolist() == list(range(30, 60))


def test_labels_stand_where_the_original_puts_them():
    """The corner of each recorded tile, behind JPEG, against ours."""
    try:
        ImageFont.truetype("DejaVuSans-Bold.ttf", 26)
    except OSError:
        pytest.skip("the font of the recorded mosaic is not on this machine")
    seconds = CASES["video_4x4"]["state"]["video"]["timestamps"]
    ours = io.BytesIO()
    draw_mosaic([Image.new("RGB", (384, 384))] * 16, seconds).save(ours, "JPEG", quality=85)
    found = np.asarray(Image.open(ours).convert("L"), dtype=int)
    recorded = Image.open(io.BytesIO(image_bytes("mosaic_4x4.jpg"))).convert("L")
    expected = np.asarray(recorded, dtype=int)
    for index, second in enumerate(seconds):
        row, column = divmod(index, 4)
        width = 16 + 15 * len(f"t={second}s")
        corner = np.s_[row * 384 : row * 384 + 32, column * 384 : column * 384 + width - 8]
        assert np.abs(found[corner] - expected[corner]).mean() < 2
