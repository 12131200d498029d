"""Schemas of the bodies of `/v1/decisions` in OpenAI's shape."""

from __future__ import annotations

from typing import Any

from system1_core.wire.dialect import RequestLimits
from system1_core.wire.schema_parts import (
    COUNT,
    NULLABLE_TEXT,
    SHARE,
    TEXT,
    Schema,
    list_of,
    object_of,
    one_of,
    ref,
)


def decisions_schemas(limits: RequestLimits) -> dict[str, Schema]:
    """Schemas by name."""
    shared = {"name": NULLABLE_TEXT, "instructions": ref("DecisionInstructions")}
    choice = object_of(["value"], {"value": {"type": ["string", "boolean"]}, "description": TEXT})
    level = object_of(["label"], {"label": TEXT, "description": TEXT})
    return {
        "DecisionsRequest": object_of(
            ["input", "questions"],
            {
                "model": NULLABLE_TEXT,
                "input": {
                    "anyOf": [TEXT, list_of(ref("DecisionInputItem"), minItems=1)],
                },
                "questions": list_of(
                    ref("DecisionQuestion"), minItems=1, maxItems=limits.max_decisions
                ),
                "prompt_cache_key": NULLABLE_TEXT,
                "safety_identifier": NULLABLE_TEXT,
                "prompt_cache_options": {
                    "type": ["object", "null"],
                    "properties": {
                        "mode": {"enum": ["implicit", "explicit", None]},
                        "ttl": {"const": "30m"},
                    },
                },
            },
        ),
        "DecisionQuestion": one_of("PredicateQuestion", "ChoicesQuestion", "LevelsQuestion"),
        "PredicateQuestion": object_of(
            ["type", "instructions"], {"type": {"const": "predicate"}, **shared}
        ),
        "ChoicesQuestion": object_of(
            ["type", "instructions", "choices"],
            {
                "type": {"const": "choice"},
                "choices": {
                    "description": "Values are unique; a string and a boolean always differ.",
                    **list_of(choice, minItems=2, maxItems=limits.max_options),
                },
                **shared,
            },
        ),
        "LevelsQuestion": object_of(
            ["type", "instructions", "levels"],
            {
                "type": {"const": "score"},
                "levels": list_of(level, minItems=2, maxItems=limits.max_levels),
                **shared,
            },
        ),
        **_input(),
        **_response(),
    }


def _response() -> dict[str, Schema]:
    def answer(kind: str, **fields: Any) -> Schema:
        return object_of(
            ["type", "name", *fields], {"type": {"const": kind}, "name": NULLABLE_TEXT, **fields}
        )

    value = {"type": ["string", "boolean"]}
    shares = list_of(object_of(["value", "probability"], {"value": value, "probability": SHARE}))
    levels = list_of(
        object_of(
            ["value", "label", "probability"],
            {"value": COUNT, "label": TEXT, "probability": SHARE},
        )
    )
    details = object_of(
        ["cached_tokens", "cache_write_tokens"],
        {"cached_tokens": COUNT, "cache_write_tokens": COUNT},
    )
    usage = {
        "input_tokens": COUNT,
        "input_tokens_details": details,
        "output_tokens": COUNT,
        "output_tokens_details": object_of(["reasoning_tokens"], {"reasoning_tokens": COUNT}),
        "total_tokens": COUNT,
    }
    score = {"type": "number", "minimum": 0}
    return {
        "DecisionsResponse": object_of(
            ["model", "answers", "usage"],
            {
                "model": TEXT,
                "answers": list_of(ref("DecisionAnswer")),
                "usage": object_of(list(usage), usage),
            },
        ),
        "DecisionAnswer": one_of("PredicateAnswer", "ChoicesAnswer", "LevelsAnswer"),
        "PredicateAnswer": answer("predicate", probability=SHARE),
        "ChoicesAnswer": answer("choice", choice=value, confidence=SHARE, probabilities=shares),
        "LevelsAnswer": answer("score", score=score, confidence=SHARE, probabilities=levels),
    }


def _input() -> dict[str, Schema]:
    def part(kind: str, field: str, schema: Schema, **more: Any) -> Schema:
        mark = {
            "type": ["object", "null"],
            "required": ["mode"],
            "properties": {"mode": {"const": "explicit"}},
        }
        properties = {"type": {"const": kind}, field: schema, "prompt_cache_breakpoint": mark}
        return object_of(["type", field], {**properties, **more})

    def content(*names: str) -> Schema:
        return {"anyOf": [TEXT, list_of(one_of(*names), minItems=1)]}

    def item(kind: str, **fields: Any) -> Schema:
        return object_of(["type", *fields], {"type": {"const": kind}, **fields})

    def message(role: str, *parts: str) -> Schema:
        return object_of(
            ["role", "content"],
            {"type": {"const": "message"}, "role": {"const": role}, "content": content(*parts)},
        )

    objects = {"anyOf": [{"type": "object"}, list_of({"type": "object"})]}
    detail = {"enum": ["low", "high", "auto", "original", None]}
    url = {**TEXT, "description": "A base64 data URL of a PNG or JPEG; nothing is fetched."}
    evidence = content("InputText", "InputImage")
    items = ("UserMessage", "DeveloperMessage", "SystemMessage", "AssistantMessage")
    calls = ("FunctionCall", "FunctionCallOutput", "CustomToolCall", "CustomToolCallOutput")
    return {
        "InputText": part("input_text", "text", TEXT),
        "InputImage": part("input_image", "image_url", url, detail=detail),
        "InputJson": part("input_json", "data", objects),
        "OutputText": part("output_text", "text", TEXT),
        "Refusal": part("refusal", "refusal", TEXT),
        "DecisionInstructions": content("InputText", "InputImage", "InputJson"),
        "DecisionInputItem": {"oneOf": [ref(name) for name in (*items, *calls)]},
        "UserMessage": message("user", "InputText", "InputImage", "InputJson"),
        "DeveloperMessage": message("developer", "InputText"),
        "SystemMessage": message("system", "InputText"),
        "AssistantMessage": message("assistant", "OutputText", "Refusal"),
        "FunctionCall": item("function_call", call_id=TEXT, name=TEXT, arguments=TEXT),
        "FunctionCallOutput": item("function_call_output", call_id=TEXT, output=evidence),
        "CustomToolCall": item("custom_tool_call", call_id=TEXT, name=TEXT, input=TEXT),
        "CustomToolCallOutput": item("custom_tool_call_output", call_id=TEXT, output=evidence),
    }
