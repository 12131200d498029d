"""OpenAI's input items and parts, turned into one state.

A text is the state as it is, and so is the content of a lone user message that is one text, one
image or one JSON value: the same numbers as on the protocol's own route. Anything else becomes an
array, one entry an item: `{"role", "content"}` for a message, and calls and outputs with their
type, `call_id` and content. Content of one part stands alone, of several in an array.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from system1_core.errors import MISSING
from system1_core.wire.images import Gallery
from system1_core.wire.problems import Loc, Problems, kind_of

MAX_BREAKPOINTS = 4
MAX_JSON_LEVELS = 32
MAX_JSON_VALUES = 10_000
MAX_JSON_BYTES = 256 * 2**10

_PARTS = {
    "user": ("input_text", "input_image", "input_json"),
    "developer": ("input_text",),
    "system": ("input_text",),
    "assistant": ("output_text", "refusal"),
    "output": ("input_text", "input_image"),
    "question": ("input_text", "input_image", "input_json"),
}
_ROLES = ("user", "developer", "system", "assistant")
_CALLS = {
    "function_call": ("call_id", "name", "arguments"),
    "custom_tool_call": ("call_id", "name", "input"),
}
_OUTPUTS = {
    "function_call_output": "function_call",
    "custom_tool_call_output": "custom_tool_call",
}
_TEXT_FIELD = {"input_text": "text", "output_text": "text", "refusal": "refusal"}
_DETAILS = (None, "low", "high", "auto", "original")


class Input:
    """Reads input items and question parts; images go to the gallery, problems are noted."""

    def __init__(self, gallery: Gallery, problems: Problems) -> None:
        self._gallery = gallery
        self._problems = problems
        self._calls: set[tuple[str, str]] = set()
        self._breakpoints = 0

    def state(self, given: Any) -> Any:
        """The state behind `input`."""
        if isinstance(given, str):
            return given
        if not isinstance(given, list):
            found = "missing" if given is MISSING else kind_of(given)
            msg = f"input: must be a string or an array of items, got {found}"
            return self._wrong(("input",), msg, "missing" if given is MISSING else "type_error")
        if not given:
            return self._wrong(("input",), "input: at least 1 item is needed", "too_short")
        items = [self._item(item, ("input", index)) for index, item in enumerate(given)]
        if len(items) == 1 and isinstance(items[0], dict) and items[0].get("role") == "user":
            content = items[0]["content"]
            parts = given[0].get("content")
            if not isinstance(parts, list) or len(parts) == 1:
                return content
        return items

    def _item(self, item: Any, loc: Loc) -> Any:
        if not isinstance(item, dict):
            return self._wrong(loc, f"{_shown(loc)}: must be an object", "dict_type", item)
        kind = item.get("type", "message")
        if kind == "message":
            return self._message(item, loc)
        if isinstance(kind, str) and kind in _CALLS:
            return self._call(kind, item, loc)
        if isinstance(kind, str) and kind in _OUTPUTS:
            return self._output(kind, item, loc)
        kinds = ", ".join(("message", *_CALLS, *_OUTPUTS))
        msg = f"{_shown(loc)}: unknown type, must be one of {kinds}"
        return self._wrong((*loc, "type"), msg, "union_tag_invalid", kind)

    def _message(self, item: Mapping[str, Any], loc: Loc) -> Any:
        role = item.get("role", MISSING)
        if not isinstance(role, str) or role not in _ROLES:
            msg = f"{_shown(loc)}: role must be one of {', '.join(_ROLES)}"
            return self._wrong((*loc, "role"), msg, "literal_error", role)
        content = self.content(item.get("content", MISSING), (*loc, "content"), role)
        return {"role": role, "content": content}

    def _call(self, kind: str, item: Mapping[str, Any], loc: Loc) -> Any:
        call = {"type": kind}
        for name in _CALLS[kind]:
            value = item.get(name, MISSING)
            if not isinstance(value, str):
                msg = f"{_shown(loc)}: {name} must be a string"
                return self._wrong((*loc, name), msg, "string_type", value)
            call[name] = value
        self._calls.add((kind, call["call_id"]))
        return call

    def _output(self, kind: str, item: Mapping[str, Any], loc: Loc) -> Any:
        call_id = item.get("call_id", MISSING)
        if not isinstance(call_id, str):
            msg = f"{_shown(loc)}: call_id must be a string"
            return self._wrong((*loc, "call_id"), msg, "string_type", call_id)
        if (_OUTPUTS[kind], call_id) not in self._calls:
            msg = f"{_shown(loc)}: no {_OUTPUTS[kind]} with call_id {call_id[:100]!r} before it"
            return self._wrong((*loc, "call_id"), msg, "unreferenced", call_id)
        output = self.content(item.get("output", MISSING), (*loc, "output"), "output")
        return {"type": kind, "call_id": call_id, "output": output}

    def content(self, given: Any, loc: Loc, source: str) -> Any:
        """A string, or parts of the kinds that `source` (a role, "output", "question") may hold."""
        if isinstance(given, str):
            return given
        if not isinstance(given, list):
            found = "missing" if given is MISSING else kind_of(given)
            msg = f"{_shown(loc)}: must be a string or an array of parts, got {found}"
            return self._wrong(loc, msg, "missing" if given is MISSING else "type_error")
        if not given:
            return self._wrong(loc, f"{_shown(loc)}: at least 1 part is needed", "too_short")
        parts = [self._part(part, (*loc, index), source) for index, part in enumerate(given)]
        return parts[0] if len(parts) == 1 else parts

    def _part(self, part: Any, loc: Loc, source: str) -> Any:
        kind = part.get("type", MISSING) if isinstance(part, dict) else MISSING
        if not isinstance(kind, str) or kind not in _PARTS[source]:
            msg = f"{_shown(loc)}: must be a part of type {' or '.join(_PARTS[source])}"
            return self._wrong((*loc, "type"), msg, "union_tag_invalid", kind)
        self._count_breakpoint(part.get("prompt_cache_breakpoint"), loc)
        if kind == "input_image":
            return self._image(part, loc)
        if kind == "input_json":
            return self._json(part.get("data", MISSING), (*loc, "data"))
        name = _TEXT_FIELD[kind]
        text = part.get(name, MISSING)
        if not isinstance(text, str):
            return self._wrong(
                (*loc, name), f"{_shown(loc)}: {name} must be a string", "string_type", text
            )
        return text

    def _image(self, part: Mapping[str, Any], loc: Loc) -> str:
        detail = part.get("detail")
        if not (detail is None or isinstance(detail, str)) or detail not in _DETAILS:
            msg = f"{_shown(loc)}: detail must be low, high, auto or original"
            self._wrong((*loc, "detail"), msg, "literal_error", detail)
        return self._gallery.add_url(part.get("image_url", MISSING), (*loc, "image_url"))

    def _json(self, given: Any, loc: Loc) -> Any:
        is_objects = isinstance(given, list) and all(isinstance(item, dict) for item in given)
        if not isinstance(given, dict) and not is_objects:
            msg = f"{_shown(loc)}: must be an object or an array of objects"
            return self._wrong(loc, msg, "type_error", given)
        levels, values = _extent(given)
        size = len(json.dumps(given, ensure_ascii=False, separators=(",", ":")).encode())
        for found, limit, unit in (
            (levels, MAX_JSON_LEVELS, "levels"),
            (values, MAX_JSON_VALUES, "values"),
            (size, MAX_JSON_BYTES, "bytes of compact JSON"),
        ):
            if found > limit:
                self._wrong(loc, f"{_shown(loc)}: {found} {unit}, limit {limit}", "too_long")
        return given

    def _count_breakpoint(self, mark: Any, loc: Loc) -> None:
        if mark is None:
            return
        loc = (*loc, "prompt_cache_breakpoint")
        if not isinstance(mark, dict) or mark.get("mode") != "explicit":
            self._wrong(loc, f"{_shown(loc)}: mode must be 'explicit'", "literal_error")
        self._breakpoints += 1
        if self._breakpoints == MAX_BREAKPOINTS + 1:
            self._wrong(loc, f"more than {MAX_BREAKPOINTS} cache breakpoints", "too_long")

    def check_cache_options(self, fields: Mapping[str, Any]) -> None:
        """Notes hints of the wrong form; their content changes no answer."""
        for name in ("prompt_cache_key", "safety_identifier"):
            value = fields.get(name)
            if value is not None and not isinstance(value, str):
                msg = f"{name}: must be a string, got {kind_of(value)}"
                self._wrong((name,), msg, "string_type", value)
        options = fields.get("prompt_cache_options")
        loc: Loc = ("prompt_cache_options",)
        if options is None:
            return
        if not isinstance(options, dict):
            self._wrong(loc, f"{_shown(loc)}: must be an object", "dict_type", options)
        elif options.get("mode") not in (None, "implicit", "explicit"):
            msg = f"{_shown(loc)}: mode must be implicit or explicit"
            self._wrong((*loc, "mode"), msg, "literal_error", options["mode"])
        elif options.get("ttl") not in (None, "30m"):
            msg = f"{_shown(loc)}: ttl must be 30m"
            self._wrong((*loc, "ttl"), msg, "literal_error", options["ttl"])

    def _wrong(self, loc: Loc, msg: str, type: str, input: Any = MISSING) -> Any:
        self._problems.add(loc, msg, type, input)


def _extent(value: Any) -> tuple[int, int]:
    """Levels of arrays and objects, and values of any kind, in a JSON value."""
    levels = 0
    values = 1
    row = [value]
    while row := [item for item in row if isinstance(item, list | dict)]:
        levels += 1
        row = [m for item in row for m in (item.values() if isinstance(item, dict) else item)]
        values += len(row)
    return levels, values


def _shown(loc: Loc) -> str:
    shown = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return shown.removeprefix(".")
