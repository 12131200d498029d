"""A video file to the mosaic that `state.video` describes; needs ffmpeg and ffprobe.

    python -m models_omnijev.mosaic VIDEO MOSAIC.jpg

prints the JSON of `state.video`; the JPEG is the request's only image. Never used while serving.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from models_omnijev.questions import Video

N_FRAMES = 16
COLUMNS = 4
TILE = 384
_JPEG_QUALITY = 85
_TIMEOUT_S = 120
# Seeking to the very end gives no frame.
_BEFORE_END_S = 0.05
_FONTS = ("DejaVuSans-Bold.ttf", "DejaVuSans.ttf")


class MosaicFailed(Exception):
    """No mosaic can be made; says why and what to do."""


def make_mosaic(file: Path) -> tuple[bytes, Video]:
    """The JPEG with 16 frames of a video file, and what `state.video` says about it.

    Raises MosaicFailed for a missing program, an unreadable file, or less than a second of video.
    """
    duration = probe_duration(file)
    if duration < 1:
        raise MosaicFailed(f"{file}: {duration:g} s long, at least 1 s is needed; use a picture")
    times = [(index + 0.5) / N_FRAMES * duration for index in range(N_FRAMES)]
    frames: list[Image.Image] = []
    for time in times:
        frame = grab_frame(file, min(time, max(0.0, duration - _BEFORE_END_S)))
        if frame is None:
            frame = frames[-1] if frames else Image.new("RGB", (TILE, TILE))
        frames.append(frame)
    seconds = [round(time) for time in times]
    jpeg = io.BytesIO()
    draw_mosaic(frames, seconds).save(jpeg, "JPEG", quality=_JPEG_QUALITY)
    video = Video(
        n_frames=N_FRAMES,
        cols=COLUMNS,
        tile=TILE,
        timestamps=tuple(seconds),
        duration=round(duration, 1),
    )
    return jpeg.getvalue(), video


def draw_mosaic(
    frames: Sequence[Image.Image], seconds: Sequence[int], *, cols: int = COLUMNS, tile: int = TILE
) -> Image.Image:
    """RGB frames row by row, each in a black square with its time in the corner."""
    rows = -(-len(frames) // cols)
    mosaic = Image.new("RGB", (cols * tile, rows * tile))
    for index, (frame, second) in enumerate(zip(frames, seconds, strict=True)):
        row, column = divmod(index, cols)
        mosaic.paste(_tile(frame, f"t={second}s", tile), (column * tile, row * tile))
    return mosaic


def probe_duration(file: Path) -> float:
    """Seconds of a video file, as ffprobe reads them. Raises MosaicFailed."""
    arguments = ["-show_entries", "format=duration", "-of", "default=nw=1:nk=1"]
    output = _run(["ffprobe", "-v", "error", *arguments, _path(file)])
    try:
        return float(output.stdout)
    except ValueError as error:
        why = output.stderr.decode(errors="replace").strip() or "no duration found"
        raise MosaicFailed(f"{file}: {why}; is it a video file?") from error


def grab_frame(file: Path, second: float) -> Image.Image | None:
    """The RGB frame at a time, None where ffmpeg gives none."""
    seek = ["-ss", f"{second:.3f}", "-i", _path(file)]
    form = ["-frames:v", "1", "-q:v", "3", "-f", "image2pipe", "-vcodec", "mjpeg", "-"]
    output = _run(["ffmpeg", "-nostdin", "-v", "error", *seek, *form])
    if output.returncode or not output.stdout:
        return None
    try:
        with Image.open(io.BytesIO(output.stdout), formats=("JPEG",)) as frame:
            return frame.convert("RGB")
    except OSError:
        return None


def _tile(frame: Image.Image, label: str, tile: int) -> Image.Image:
    scale = min(tile / frame.width, tile / frame.height)
    size = max(1, int(frame.width * scale)), max(1, int(frame.height * scale))
    square = Image.new("RGB", (tile, tile))
    corner = (tile - size[0]) // 2, (tile - size[1]) // 2
    square.paste(frame.resize(size, Image.Resampling.BILINEAR), corner)
    draw = ImageDraw.Draw(square)
    draw.rectangle((0, 0, 16 + 15 * len(label), 36), fill=(0, 0, 0))
    draw.text((6, 4), label, fill=(255, 255, 255), font=_font())
    return square


def _font() -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    for name in _FONTS:
        try:
            return ImageFont.truetype(name, 26)
        except OSError:
            continue
    return ImageFont.load_default()


def _path(file: Path) -> str:
    # A name that starts with a dash or names a protocol would be read as something else.
    return f"file:{file.absolute()}"


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False)
    except FileNotFoundError as error:
        raise MosaicFailed(
            f"{command[0]}: not found; install ffmpeg, which brings ffprobe"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise MosaicFailed(
            f"{command[0]}: took more than {_TIMEOUT_S} s; is the file whole?"
        ) from error


def main(arguments: Sequence[str] | None = None) -> None:
    """Write a mosaic and print its `state.video`."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("video", type=Path)
    parser.add_argument("mosaic", type=Path, help="JPEG file to write")
    options = parser.parse_args(arguments)
    try:
        jpeg, video = make_mosaic(options.video)
    except MosaicFailed as error:
        sys.exit(str(error))
    options.mosaic.write_bytes(jpeg)
    print(json.dumps(asdict(video)))


if __name__ == "__main__":
    main()
