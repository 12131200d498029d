"""The page at `/docs`: the OpenAPI document as a person reads it, with nothing loaded from afar."""

from __future__ import annotations

import json
from html import escape
from typing import Any

_STYLE = """
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
code, pre { font: 13px/1.4 ui-monospace, monospace }
pre { overflow-x: auto; padding: .75rem; border: 1px solid #8886; border-radius: .4rem }
summary { cursor: pointer }
"""


def docs_page(document: dict[str, Any]) -> str:
    """HTML of an OpenAPI document: every route, then every schema."""
    title = f"{document['info']['title']} {document['info']['version']}"
    routes = "".join(
        f"<h2><code>{escape(method.upper())} {escape(path)}</code></h2>{_operation(operation)}"
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    )
    schemas = "".join(
        f'<details id="{escape(name)}"><summary><code>{escape(name)}</code></summary>'
        f"<pre>{escape(json.dumps(schema, indent=2))}</pre></details>"
        for name, schema in document["components"]["schemas"].items()
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>"
        '<p>The same for programs: <a href="openapi.json">openapi.json</a>. '
        'To try it: <a href="./">playground</a>.</p>'
        f"{routes}<h1>Schemas</h1>{schemas}</body></html>"
    )


def _operation(operation: dict[str, Any]) -> str:
    rows = "".join(
        f"<li><code>{escape(str(status))}</code> {escape(response.get('description', ''))}</li>"
        for status, response in operation.get("responses", {}).items()
    )
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    shown = f"<pre>{escape(json.dumps(body['schema'], indent=2))}</pre>" if body else ""
    summary = operation.get("summary") or operation.get("description", "")
    return f"<p>{escape(summary)}</p>{shown}<ul>{rows}</ul>"
