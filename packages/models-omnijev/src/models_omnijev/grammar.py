"""The original's grammar of questions and videos, and what it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from models_omnijev.limits import LIMITS
from models_omnijev.questions import TYPES, Asked, OmnijevQuestion, Video
from system1_core.errors import MISSING, InvalidRequest
from system1_core.wire.problems import kind_of


def read_question(name: str, fields: Any) -> OmnijevQuestion:
    """One entry of `questions`. Raises InvalidRequest with the place of the first problem."""
    if not isinstance(fields, dict):
        raise _wrong(("questions", name), f"question {name!r}: must be an object", fields)
    kind = fields.get("type", MISSING)
    if not isinstance(kind, str) or kind not in TYPES:
        msg = f"question {name!r}: type must be one of {', '.join(TYPES)}"
        raise _wrong(("questions", name, "type"), msg, kind)
    read = _Fields(name, kind, fields)
    instructions = read.instructions()
    keys, texts = _OPTIONS[kind](read)
    # Index and level number name the options inside this server: keys may repeat or be numbers.
    criteria: Any = None
    if kind != "noul":
        criteria = dict.fromkeys(map(str, range(len(keys)))) if kind == "choice" else list(keys)
    return OmnijevQuestion(
        id=name,
        type=kind,
        instructions=instructions,
        criteria=criteria,
        asked=Asked.of(kind, instructions, tuple(keys), tuple(texts)),
    )


def read_video(fields: Any) -> Video | None:
    """`state.video`; None where it is absent or empty. Raises InvalidRequest."""
    if not fields:
        return None
    loc = ("state", "video")
    if not isinstance(fields, dict):
        raise _wrong(loc, f"state.video: must be an object, got {kind_of(fields)}", fields)
    counts = []
    for field in ("n_frames", "cols", "tile"):
        value = fields.get(field, MISSING)
        if type(value) is not int or value < 1:
            raise _wrong((*loc, field), f"state.video.{field}: must be a positive integer", value)
        counts.append(value)
    n_frames, cols, tile = counts
    if n_frames > LIMITS.frames:
        msg = f"state.video.n_frames: {n_frames} frames, limit {LIMITS.frames}; sample fewer"
        raise _wrong((*loc, "n_frames"), msg, n_frames)
    timestamps = fields.get("timestamps", MISSING)
    if not isinstance(timestamps, list) or not all(map(_is_number, timestamps)):
        msg = "state.video.timestamps: must be an array of numbers, the seconds of the frames"
        raise _wrong((*loc, "timestamps"), msg, timestamps)
    if len(timestamps) < n_frames:
        msg = f"state.video.timestamps: {len(timestamps)} of them for {n_frames} frames"
        raise _wrong((*loc, "timestamps"), msg, timestamps)
    duration = fields.get("duration", MISSING)
    if not _is_number(duration):
        raise _wrong((*loc, "duration"), "state.video.duration: must be a number", duration)
    return Video(
        n_frames=n_frames,
        cols=cols,
        tile=tile,
        timestamps=tuple(timestamps[:n_frames]),
        duration=duration,
    )


class _Fields:
    """The fields of one question."""

    def __init__(self, name: str, kind: str, fields: Mapping[str, Any]) -> None:
        self.name = name
        self.kind = kind
        self.fields = fields

    def wrong(self, msg: str, *path: str | int, input: Any = MISSING) -> InvalidRequest:
        loc = ("questions", self.name, self.kind, *path)
        return _wrong(loc, f"question {self.name!r}: {msg}", input)

    def instructions(self) -> str:
        value = self.fields.get("instructions", MISSING)
        if isinstance(value, str):
            return value
        # The original writes a number as text.
        if isinstance(value, int | float):
            return str(value)
        found = "missing" if value is MISSING else kind_of(value)
        raise self.wrong(f"instructions must be a string, got {found}", "instructions", input=value)

    def region(self, value: Any, *path: str | int) -> str:
        """The text of a region; "" for an empty one, which is none."""
        if not value:
            return ""
        box = value.get("box", MISSING) if isinstance(value, dict) else MISSING
        if not isinstance(box, list) or len(box) != 4 or not all(map(_is_number, box)):
            msg = (
                'region must be {"box": [x0, y0, x1, y1]} with numbers of at most '
                f"{LIMITS.coordinate:g} either way"
            )
            raise self.wrong(msg, *path, "region", input=value)
        return f"region [{','.join(str(round(each)) for each in box)}]"


def _noul(read: _Fields) -> tuple[list[Any], list[str]]:
    return ["yes"], [read.region(read.fields.get("region"))]


def _choice(read: _Fields) -> tuple[list[Any], list[str]]:
    if "options" not in read.fields:
        rubrics = read.fields.get("criteria", MISSING)
        if not isinstance(rubrics, dict):
            msg = "needs options (an array) or criteria (an object of option to rubric)"
            raise read.wrong(msg, "criteria", input=rubrics)
        if not rubrics:
            raise read.wrong("criteria: at least 1 option is needed", "criteria")
        texts = [
            key if rubric is None or rubric == "" else f"{key}: {rubric}"
            for key, rubric in rubrics.items()
        ]
        return list(rubrics), texts
    entries = read.fields["options"]
    if not isinstance(entries, list):
        raise read.wrong(f"options must be an array, got {kind_of(entries)}", "options")
    keys, texts = [], []
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict):
            msg = f"options.{index} must be an object, got {kind_of(entry)}"
            raise read.wrong(msg, "options", index, input=entry)
        if entry.get("abstain"):
            continue
        key, text = _entry(read, entry, index)
        keys.append(key)
        texts.append(text)
    if not keys:
        raise read.wrong("options: at least 1 besides abstaining is needed", "options")
    return keys, texts


def _entry(read: _Fields, entry: Mapping[str, Any], index: int) -> tuple[Any, str]:
    key, text = entry.get("key"), entry.get("text")
    for field, value in (("key", key), ("text", text)):
        if isinstance(value, dict | list):
            msg = f"options.{index}.{field} must be a string, got {kind_of(value)}"
            raise read.wrong(msg, "options", index, field, input=value)
    region = read.region(entry.get("region"), "options", index)
    name = next((each for each in (key, text) if each is not None), f"option_{index}")
    return name, region or ("" if text is None else str(text))


def _score(read: _Fields) -> tuple[list[Any], list[str]]:
    levels = read.fields.get("levels")
    if not levels:
        rubrics = read.fields.get("criteria", MISSING)
        if not isinstance(rubrics, dict) or not rubrics:
            msg = "needs levels (an array) or criteria (an object of level to rubric), 1 at least"
            raise read.wrong(msg, "levels", input=levels)
        levels = list(rubrics)
    if not isinstance(levels, list):
        raise read.wrong(f"levels must be an array, got {kind_of(levels)}", "levels", input=levels)
    for index, level in enumerate(levels):
        if isinstance(level, dict | list):
            msg = f"levels.{index} must be a string or a number, got {kind_of(level)}"
            raise read.wrong(msg, "levels", index, input=level)
    return levels, [str(level) for level in levels]


_OPTIONS = {"noul": _noul, "choice": _choice, "score": _score}


def _is_number(value: Any) -> bool:
    # False for NaN as well; huge integers do not overflow here.
    return type(value) in (int, float) and abs(value) <= LIMITS.coordinate


def _wrong(loc: tuple[str | int, ...], msg: str, input: Any = MISSING) -> InvalidRequest:
    kind = "missing" if input is MISSING else "value_error"
    return InvalidRequest.at(loc, msg, kind, input)
