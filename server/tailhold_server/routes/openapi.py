"""The OpenAPI document of the surfaces: bodies that the routes read themselves, and errors in their one shape."""

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
_REFUSED = {
    "description": "What is wrong, in OpenAI's envelope.",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
}
_GENERATED = ("HTTPValidationError", "ValidationError")
"""FastAPI's own shape of errors, which nothing here has."""


def document(app: FastAPI) -> Callable[[], dict[str, Any]]:
    """What `app.openapi` is replaced by; made once."""

    def made() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(get_openapi(title=app.title, version=app.version, routes=app.routes))
        return app.openapi_schema

    return made


def _document(told: dict[str, Any]) -> dict[str, Any]:
    schemas = told.setdefault("components", {}).setdefault("schemas", {})
    for name in _GENERATED:
        schemas.pop(name, None)
    schemas["Error"] = _ERROR
    for operation in (each for path in told["paths"].values() for each in path.values()):
        operation["responses"].pop("422", None)
        operation["responses"] |= {"4XX": _REFUSED, "5XX": _REFUSED}
        for media in operation.get("requestBody", {}).get("content", {}).values():
            schemas |= media["schema"].pop("$defs", {})
    told["components"]["schemas"] = dict(sorted(schemas.items()))
    return told
