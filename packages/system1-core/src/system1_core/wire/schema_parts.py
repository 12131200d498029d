"""Small pieces that the schemas of both dialects are made of."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
SHARE: Schema = {"type": "number", "minimum": 0, "maximum": 1}
NULLABLE_TEXT: Schema = {"type": ["string", "null"]}


def ref(name: str) -> Schema:
    """A reference to a schema of the document's components."""
    return {"$ref": f"#/components/schemas/{name}"}


def object_of(required: list[str], properties: dict[str, Any], **more: Any) -> Schema:
    """An object with at least `required` of its `properties`; others are allowed."""
    return {"type": "object", "required": required, "properties": properties, **more}


def list_of(items: Any, **more: Any) -> Schema:
    """An array whose items all fit one schema."""
    return {"type": "array", "items": items, **more}


def one_of(*names: str) -> Schema:
    """One of several components, told apart by their `type`."""
    return {"oneOf": [ref(name) for name in names], "discriminator": {"propertyName": "type"}}
