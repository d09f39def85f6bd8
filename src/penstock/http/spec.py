"""How a route is documented: its scope, an example of its answer, and the codes with which it fails."""

from __future__ import annotations

import inspect
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.responses import Response

from penstock.core.codec import JSON
from penstock.http.answers import Answer
from penstock.http.problems import MEDIA_TYPE, document, errors_by_status
from penstock.http.shapes import Schema, like
from penstock.http.shapes import components as answers

_EVERYWHERE: Final = (
    *("unauthorized", "forbidden", "invalid_input", "invalid_name", "missing_field", "too_large", "rate_limited"),
    "internal_error",
    *("store_unavailable", "store_busy"),
)
_OF_BODIES: Final = ("malformed_body", "cross_site", "unsupported_media_type")
_PROBLEM: Final = {
    "type": "object",
    "title": "Problem",
    "description": "RFC 9457; `code` is stable, `hint` says what to do next.",
    "required": ["type", "title", "status", "detail", "code", "message", "hint"],
    "properties": {
        **{name: {"type": "string"} for name in ("type", "title", "detail", "code", "message", "hint")},
        "status": {"type": "integer"},
        "event_id": {"type": "string", "description": "With `commit_unknown`: the id to repeat the request with."},
    },
}
_ABOUT: Final = """The log over HTTP: append, claim and settle, operate and look.

Send `Authorization: Bearer TOKEN`; `penstock token create` creates tokens, and `x-scope` is the scope that a route
needs. Payloads that are not JSON are `{"base64": …}`; with `Prefer: payload=base64` all payloads are sent like this,
byte for byte. Without the scope `payload` they are left out of answers. Every error is `application/problem+json`.
"""
_examples: dict[str, Any] = {}  # of every problem that a route may answer with


def spec(
    scope: str | None,
    example: Any,
    *codes: str,
    shape: Schema | None = None,
    media_type: str = JSON,
    status: int = 200,
    reads: bool = False,
    or_empty: str | None = None,
) -> dict[str, Any]:
    """Return the options of a route: `reads` if it has no body, `or_empty` says when it answers 204.

    `shape` is the schema of the answer; without it, the one that the example shows.
    """
    content = {}
    if example is not None:
        shown = {"schema": shape or like(example), "example": example}
        content = {"content": {media_type: shown}}
    responses: dict[int | str, dict[str, Any]] = {status: {"description": "Done.", **content}}
    if or_empty is not None:
        seconds = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
        responses[204] = {"description": or_empty, "headers": seconds}
    always = () if scope is None else (*_EVERYWHERE, *(() if reads else _OF_BODIES))
    for failed, errors in errors_by_status(tuple(dict.fromkeys((*always, *codes)))).items():
        _examples.update({error.code: {"summary": error.code, "value": document(error())} for error in errors})
        named = {error.code: {"$ref": f"#/components/examples/{error.code}"} for error in errors}
        kind = {"schema": {"$ref": "#/components/schemas/Problem"}, "examples": named}
        responses[failed] = {"description": ", ".join(f"`{one}`" for one in named), "content": {MEDIA_TYPE: kind}}
    extra = {"x-scope": scope, "security": [{"token": []}]} if scope is not None else {"security": []}
    return {
        "status_code": status,
        "response_model": None,
        "response_class": Answer if media_type == JSON else Response,
        "responses": responses,
        "openapi_extra": extra,
    }


def openapi(app: FastAPI) -> dict[str, Any]:
    """Return the description of the whole service."""
    if app.openapi_schema is None:
        made = get_openapi(
            title=app.title, version=app.version, description=inspect.cleandoc(_ABOUT), routes=app.routes
        )
        components = made.setdefault("components", {})
        schemas = components.setdefault("schemas", {})
        taken = schemas.keys() & answers().keys()
        assert not taken, f"the body of a request has the name of an answer: {taken}"
        schemas |= {"Problem": _PROBLEM, **answers()}
        components["schemas"] = dict(sorted(schemas.items()))
        components["examples"] = dict(sorted(_examples.items()))
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        app.openapi_schema = made
    return app.openapi_schema
