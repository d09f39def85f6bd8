"""Forms as browsers send them."""

from __future__ import annotations

from urllib.parse import parse_qsl

from starlette.requests import Request

from penstock.errors import MalformedBody, WrongMediaType

_FIELDS = 200


async def form_of(request: Request) -> dict[str, str]:
    """Return the fields of a form; of one that was sent twice the last."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise WrongMediaType("A page sends forms as application/x-www-form-urlencoded.")
    try:
        sent = (await request.body()).decode("ascii")
        fields = parse_qsl(sent, keep_blank_values=True, max_num_fields=_FIELDS, errors="strict")
    except ValueError as error:
        raise MalformedBody("The form cannot be read.") from error
    return {name: value.replace("\r\n", "\n").replace("\x00", "") for name, value in fields}
