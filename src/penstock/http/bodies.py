"""Bodies of requests: strict JSON, of which no number loses a digit, and payloads in base64."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Coroutine
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Final

import orjson
from fastapi import Request
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from penstock.errors import InvalidPayload, MalformedBody
from penstock.http.problems import Refused

_BASE64: Final = "base64"
_ODD_NUMBER: Final = re.compile(rb"[0-9.]{16,}|[0-9][eE][+-]?[0-9]{3}")  # it may be more than a double holds

Whole = Annotated[int, Field(strict=True)]  # 1, but neither "1" nor true
Number = Annotated[float, Field(strict=True)]
Flag = Annotated[bool, Field(strict=True)]


class Body(BaseModel):
    """The body of a request; a field that nobody knows is a mistake, and not ignored."""

    model_config = ConfigDict(extra="forbid")

    def given(self) -> dict[str, Any]:
        """Return the fields that were sent."""
        return {name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set}


class StrictRoute(APIRoute):
    """A route that reads JSON strictly."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def strictly(request: Request) -> Response:
            return await handle(_StrictRequest(request.scope, request.receive))

        return strictly


class _StrictRequest(Request):
    async def json(self) -> Any:
        try:
            return loads(await self.body())
        except MalformedBody as error:
            raise Refused(error) from error


def loads(body: bytes) -> Any:
    """Decode JSON. Lone surrogates, NaN, a depth above 1,000 and numbers that would lose digits are refused."""
    try:
        found = orjson.loads(body)
        if _ODD_NUMBER.search(body):  # rare, and slow to look at
            json.loads(body, parse_int=_whole, parse_float=_double)
    except orjson.JSONDecodeError as error:
        raise MalformedBody(f"The body is not valid JSON: {error}.") from error
    except (ValueError, RecursionError) as error:
        raise MalformedBody(f"The body cannot be stored as it is: {error}.") from error
    return found


def _whole(text: str) -> int:
    if len(text) > 20 or not -(2**63) <= int(text) < 2**64:
        raise ValueError(f"the number {text[:40]} does not fit into 64 bits")
    return int(text)


def _double(text: str) -> float:
    try:
        if Decimal(text) != Decimal(repr(float(text))):
            raise ValueError(f"the number {text[:40]} has more digits than a double")
    except InvalidOperation as error:
        raise ValueError(f"the number {text[:40]} cannot be read") from error
    return float(text)


def payload_of(sent: Any) -> Any:
    """Return a payload as it was sent: JSON, or the bytes that `{"base64": …}` holds."""
    if not is_base64(sent):
        return sent
    try:
        return base64.b64decode(sent[_BASE64], validate=True)
    except (binascii.Error, ValueError, TypeError) as error:
        raise InvalidPayload("What is called base64 is not.") from error


def is_base64(value: Any) -> bool:
    """Return whether JSON stands for bytes: an object whose only member is `base64`."""
    return isinstance(value, dict) and value.keys() == {_BASE64}
