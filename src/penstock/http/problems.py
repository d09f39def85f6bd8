"""Errors as `application/problem+json`: which status each code has, and what the body says."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from penstock.core.log_fields import about
from penstock.errors import (
    CommitUnknown,
    InternalError,
    InvalidInput,
    MalformedBody,
    MethodNotAllowed,
    NotFound,
    PenstockError,
    WrongMediaType,
    all_errors,
)

logger = logging.getLogger("penstock")
MEDIA_TYPE: Final = "application/problem+json"
_SHOWN: Final = 3  # of the mistakes in a request
_LONGEST: Final = 2_000  # characters of a message: it may quote what was sent

# Every code that is not simply invalid input (422) or refused (400).
_STATUSES: Final = {
    400: ("malformed_body",),
    401: ("unauthorized",),
    403: ("forbidden", "cross_site", "permission_denied"),
    404: (
        *("not_archived", "not_found", "unknown_event", "unknown_group", "unknown_job", "unknown_operation"),
        *("unknown_reader", "unknown_run", "unknown_schedule", "unknown_token"),
    ),
    405: ("method_not_allowed",),
    409: (
        *("append_only", "binding_changed", "claim_lost", "duplicate_mismatch", "group_exists", "illegal_transition"),
        *("in_flight", "job_exists", "key_reused", "lease_lost", "ordered_group", "settle_mismatch", "stale_batch"),
        *("state_conflict", "token_exists", "plan_outdated", "operation_ended"),
    ),
    410: ("pruned",),
    413: ("too_large",),
    415: ("unsupported_media_type",),
    422: ("effect_failed", "not_in_lease", "state_needs_key"),
    429: ("rate_limited",),
    500: ("internal_error",),
    501: ("missing_dependency",),
    503: (
        *("commit_unknown", "copied_log", "on_standby", "schema_missing", "schema_too_new", "schema_too_old"),
        *(
            "archive_damaged",
            "archive_unavailable",
            "store_busy",
            "store_closed",
            "store_read_only",
            "store_unavailable",
        ),
    ),
}
_STATUS_OF: Final = {code: status for status, codes in _STATUSES.items() for code in codes}
_TITLES: Final = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    410: "Gone",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
}


def status_of(error: type[PenstockError] | PenstockError) -> int:
    """Return the status with which an error is answered."""
    kind = error if isinstance(error, type) else type(error)
    return _STATUS_OF.get(kind.code, 422 if issubclass(kind, InvalidInput) else 400)


def document(error: PenstockError) -> dict[str, Any]:
    """Return the body of a problem."""
    status = status_of(error)
    said = type(error)().message if status == 503 else error.message  # which may name the database to a stranger
    message = said.encode("utf-8", "backslashreplace").decode()[:_LONGEST]
    found: dict[str, Any] = {
        "type": f"urn:penstock:error:{error.code}",
        "title": _TITLES[status],
        "status": status,
        "detail": message,
        "code": error.code,
        "message": message,
        "hint": error.hint,
    }
    if isinstance(error, CommitUnknown) and error.event_id is not None:
        found["event_id"] = str(error.event_id)
    return found


def problem(error: PenstockError, headers: Mapping[str, str] | None = None) -> Response:
    """Return the answer to a request that failed."""
    body = document(error)
    if body["status"] == 503:
        logger.warning("http: %s", error.message, extra=about("http_unavailable", code=error.code))
    given = dict(headers or {})
    if body["status"] == 401:
        given.setdefault("WWW-Authenticate", "Bearer")
    if body["status"] in (429, 503):
        given.setdefault("Retry-After", "1")
    return Response(orjson.dumps(body), body["status"], given, MEDIA_TYPE)


class Refused(HTTPException):
    """An error of ours where the framework lets only its own pass."""

    def __init__(self, error: PenstockError) -> None:
        super().__init__(status_of(error))
        self.error = error


def unforeseen(error: BaseException) -> Response:
    """Log an error that nobody foresaw, and answer without its words: they may hold what is nobody's business."""
    fields = about("http_error", code=InternalError.code)
    logger.error("http: %s", type(error).__name__, exc_info=error, extra=fields)
    return problem(InternalError())


def install(app: FastAPI) -> None:
    """Let every error of the app be answered as a problem."""

    async def ours(request: Request, error: Exception) -> Response:
        assert isinstance(error, PenstockError)
        return problem(error)

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return problem(InvalidInput(_mistakes(error)))

    async def framework(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if isinstance(error, Refused):
            return problem(error.error)
        return problem(_of_framework(request, error), error.headers)

    app.add_exception_handler(PenstockError, ours)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, framework)


def _of_framework(request: Request, error: HTTPException) -> PenstockError:
    if error.status_code == 404:
        return NotFound(f"There is nothing at {request.url.path[:200]}.")
    if error.status_code == 405:
        return MethodNotAllowed(f"{request.url.path[:200]} does not take {request.method}.")
    if error.status_code == 415:
        return WrongMediaType()
    return MalformedBody() if error.status_code < 500 else InternalError()


def _mistakes(error: RequestValidationError) -> str:
    """Say what is wrong where, without the values: they may be secrets, or long."""
    found = []
    for one in error.errors()[:_SHOWN]:
        where = ".".join(str(part)[:60] for part in one["loc"] if part != "body")
        found.append(f"{where or 'the body'}: {one['msg']}")
    return f"{'; '.join(found)}."


def errors_by_status(codes: tuple[str, ...]) -> dict[int, list[type[PenstockError]]]:
    """Return error classes by the status of their answers, for the documentation of a route."""
    known = all_errors()
    found: dict[int, list[type[PenstockError]]] = {}
    for code in codes:
        found.setdefault(status_of(known[code]), []).append(known[code])
    return dict(sorted(found.items()))
