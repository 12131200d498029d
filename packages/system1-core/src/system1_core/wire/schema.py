"""The OpenAPI 3.1 document of the server.

Limits that a server can set (`RequestLimits`) stand here with the values it runs with. What a
schema cannot say (duplicate keys, images that text must mention, outputs without a call) is left
to the errors.
"""

from __future__ import annotations

from typing import Any

from system1_core.wire.dialect import RequestLimits
from system1_core.wire.schema_decisions import decisions_schemas
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

_FAILURES = {
    401: "No key, or a wrong one.",
    403: "A valid key that may not do this.",
    404: "The server has no model of that name.",
    408: "The body took too long to arrive.",
    413: "Over a limit on size.",
    415: "A Content-Encoding that the server does not decode.",
    429: "Too many requests.",
    500: "The server failed.",
    502: "A server that the model needs failed.",
    503: "Loading, draining or failed.",
    504: "No answer in time.",
    529: "The queue is full.",
}


def openapi_document(
    version: str, root_path: str = "", limits: RequestLimits | None = None
) -> dict[str, Any]:
    """The document of `/openapi.json`; `root_path` is the prefix behind a reverse proxy."""
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "system1", "version": version},
        "paths": _paths(),
        "components": {"schemas": components(limits)},
    }
    if root_path:
        document["servers"] = [{"url": root_path}]
    return document


def components(limits: RequestLimits | None = None) -> dict[str, Schema]:
    """Schemas by name."""
    limits = limits or RequestLimits()
    return {**_shared(), **_systemone(limits), **decisions_schemas(limits), **_errors()}


def _paths() -> dict[str, Any]:
    either = [ref("DecisionsRequest"), ref("SystemOneRequest")]
    answered = [ref("DecisionsResponse"), ref("SystemOneResponse")]
    return {
        "/v1/systemone": _post(
            "Answer typed questions about one state",
            ref("SystemOneRequest"),
            ref("SystemOneResponse"),
        ),
        "/v1/systemone/batch": _post(
            "Answer the same questions about several states",
            ref("SystemOneBatchRequest"),
            ref("SystemOneBatchResponse"),
        ),
        "/v1/decisions": _post(
            "The same in OpenAI's shape; takes the other shape too",
            {"anyOf": either},
            {"anyOf": answered},
            invalid=ref("DecisionsError"),
            failure=ref("DecisionsError"),
        ),
        "/v1/models": _get("Models and their aliases", ref("Models"), 401),
        "/health": _get("Whether the server is ready", ref("Health"), 503, failure=ref("Health")),
    }


def _post(
    summary: str,
    request: Schema,
    response: Schema,
    invalid: Schema | None = None,
    failure: Schema | None = None,
) -> dict[str, Any]:
    responses = {"200": _reply("The answers.", response)}
    responses["422"] = _reply("The request can never succeed.", invalid or ref("InvalidRequest"))
    for status, meaning in _FAILURES.items():
        responses[str(status)] = _reply(meaning, failure or ref("Error"))
    body = {"required": True, "content": {"application/json": {"schema": request}}}
    return {"post": {"summary": summary, "requestBody": body, "responses": responses}}


def _get(
    summary: str, response: Schema, status: int, failure: Schema | None = None
) -> dict[str, Any]:
    responses = {
        "200": _reply("Fine.", response),
        str(status): _reply(_FAILURES[status], failure or ref("Error")),
    }
    return {"get": {"summary": summary, "responses": responses}}


def _reply(description: str, schema: Schema) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _shared() -> dict[str, Schema]:
    return {
        "Entry": {
            "description": "Text, or any JSON object or array in its place.",
            "type": ["string", "object", "array"],
        },
        "EntryOrNull": {"type": ["string", "object", "array", "null"]},
    }


def _systemone(limits: RequestLimits) -> dict[str, Schema]:
    questions = {
        "type": "object",
        "minProperties": 1,
        "maxProperties": limits.max_questions,
        "propertyNames": {"minLength": 1},
        "additionalProperties": ref("Question"),
    }
    common = {
        "model": {**NULLABLE_TEXT, "default": "jev-latest"},
        "questions": questions,
        "assets": {
            "description": "Images by the placeholder that the text mentions.",
            "type": ["object", "null"],
            "minProperties": 1,
            "additionalProperties": ref("Asset"),
        },
    }
    state = ref("Entry")
    states = list_of(state, minItems=1, maxItems=limits.max_states)
    return {
        "SystemOneRequest": object_of(["state", "questions"], {**common, "state": state}),
        "SystemOneBatchRequest": object_of(["states", "questions"], {**common, "states": states}),
        **_questions(limits),
        "Asset": object_of(
            ["type"],
            {"type": {"const": "image"}, "data_base64": TEXT, "part": TEXT},
            anyOf=[{"required": ["data_base64"]}, {"required": ["part"]}],
        ),
        "SystemOneResponse": object_of(
            ["model", "answers", "usage"],
            {
                "model": TEXT,
                "answers": {"type": "object", "additionalProperties": ref("Answer")},
                "usage": ref("Usage"),
            },
        ),
        "SystemOneBatchResponse": object_of(
            ["results", "total_usage"],
            {"results": list_of(ref("SystemOneResponse")), "total_usage": ref("Usage")},
        ),
        "Usage": object_of(
            ["input_tokens", "output_tokens"], {"input_tokens": COUNT, "output_tokens": COUNT}
        ),
        **_answers(),
    }


def _questions(limits: RequestLimits) -> dict[str, Schema]:
    instructions = ref("EntryOrNull")
    return {
        "Question": one_of("ChoiceQuestion", "ScoreQuestion", "NoulQuestion"),
        "ChoiceQuestion": object_of(
            ["type", "criteria"],
            {
                "type": {"const": "choice"},
                "instructions": instructions,
                "criteria": {
                    "description": "Option name to description, or null to judge it by its name.",
                    "type": "object",
                    "minProperties": 1,
                    "maxProperties": limits.max_options,
                    "additionalProperties": ref("EntryOrNull"),
                },
            },
        ),
        "ScoreQuestion": object_of(
            ["type", "criteria"],
            {
                "type": {"const": "score"},
                "instructions": instructions,
                "criteria": {
                    "description": "Levels, lowest first.",
                    **list_of(ref("Entry"), minItems=1, maxItems=limits.max_levels),
                },
            },
        ),
        "NoulQuestion": object_of(
            ["type"],
            {
                "type": {"const": "noul"},
                "instructions": instructions,
                "criteria": {
                    "type": ["object", "null"],
                    "properties": {"true": ref("EntryOrNull"), "false": ref("EntryOrNull")},
                    "additionalProperties": False,
                },
            },
        ),
    }


def _answers() -> dict[str, Schema]:
    shares = {"type": "object", "minProperties": 1, "additionalProperties": SHARE}
    return {
        "Answer": one_of("ChoiceAnswer", "ScoreAnswer", "NoulAnswer"),
        "ChoiceAnswer": object_of(
            ["type", "choice", "probabilities", "confidence"],
            {
                "type": {"const": "choice"},
                "choice": TEXT,
                "probabilities": shares,
                "confidence": SHARE,
            },
        ),
        "ScoreAnswer": object_of(
            ["type", "score", "legend", "probabilities", "confidence"],
            {
                "type": {"const": "score"},
                "score": {"type": "number", "minimum": 0},
                "legend": {"type": "object", "additionalProperties": ref("Entry")},
                "probabilities": shares,
                "confidence": SHARE,
            },
        ),
        "NoulAnswer": object_of(["type", "noul"], {"type": {"const": "noul"}, "noul": SHARE}),
    }


def _errors() -> dict[str, Schema]:
    problem = object_of(
        ["loc", "msg", "type"],
        {
            "loc": list_of({"type": ["string", "integer"]}, minItems=1),
            "msg": TEXT,
            "type": TEXT,
            "input": {},
        },
    )
    name = object_of(
        ["name", "description", "release_date"],
        {"name": TEXT, "description": TEXT, "release_date": TEXT},
    )
    return {
        "Models": object_of(
            ["models", "object", "data"],
            {
                "models": list_of(name, minItems=1),
                "object": {"const": "list"},
                "data": list_of(object_of(["id"], {"id": TEXT}), minItems=1),
            },
        ),
        "Health": object_of(["status"], {"status": TEXT}),
        "InvalidRequest": object_of(["detail"], {"detail": list_of(problem, minItems=1)}),
        "Error": object_of(
            ["detail"],
            {"detail": object_of(["error_type", "message"], {"error_type": TEXT, "message": TEXT})},
        ),
        "DecisionsError": object_of(
            ["error"],
            {
                "error": object_of(
                    ["message", "type", "param", "code"],
                    {
                        "message": TEXT,
                        "type": TEXT,
                        "param": NULLABLE_TEXT,
                        "code": NULLABLE_TEXT,
                    },
                )
            },
        ),
    }
