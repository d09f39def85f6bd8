"""What requests hold: strict JSON, of which no number loses a digit, payloads in base64, times, known parameters."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Coroutine
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Final

import orjson
from fastapi import Request
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from starlette.responses import Response

from penstock.errors import InvalidInput, InvalidPayload, MalformedBody
from penstock.http.problems import Refused

_BASE64: Final = "base64"
# A number may be more than a double holds if it has many digits or a large exponent. Most bodies have neither, which is
# quickly seen once all digits look alike.
_ALIKE: Final = bytes.maketrans(b"123456789.E", b"0000000000e")
_MANY_DIGITS: Final = b"0" * 16
_LARGE_EXPONENT: Final = re.compile(rb"0e[+-]?000")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d")


def _time(sent: Any) -> Any:
    """Let a time pass; a number would be taken for seconds since 1970, or for milliseconds."""
    if not isinstance(sent, str) or not _TIME.match(sent):
        raise ValueError("a time is text in ISO 8601")
    return sent


Moment = Annotated[datetime, BeforeValidator(_time)]
Whole = Annotated[int, Field(strict=True)]  # 1, but neither "1" nor true
Number = Annotated[float, Field(strict=True)]
Flag = Annotated[bool, Field(strict=True)]


class Body(BaseModel):
    """The body of a request; a field that nobody knows is a mistake, and not ignored."""

    model_config = ConfigDict(extra="forbid")

    def given(self) -> dict[str, Any]:
        """Return the fields that were sent."""
        return {name: self.__dict__[name] for name in self.model_fields_set}


class StrictRoute(APIRoute):
    """A route that reads JSON strictly, and refuses parameters that it does not have: a filter with a typo is none."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        known = {one.alias for one in self.dependant.query_params}

        async def strictly(request: Request) -> Response:
            sent = [name for name, _ in request.query_params.multi_items()]
            wrong = next((name for name in sent if name not in known or sent.count(name) > 1), None)
            if wrong is not None:
                why = "given twice" if wrong in known else "not a parameter of this route"
                raise InvalidInput(f"{wrong[:60]!r} is {why}.")
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
        if _may_lose_digits(body):  # rare, and slow to look at
            json.loads(body, parse_int=_whole, parse_float=_double)
    except orjson.JSONDecodeError as error:
        raise MalformedBody(f"The body is not valid JSON: {error}.") from error
    except (ValueError, RecursionError) as error:
        raise MalformedBody(f"The body cannot be stored as it is: {error}.") from error
    return found


def _may_lose_digits(body: bytes) -> bool:
    alike = body.translate(_ALIKE)
    return _MANY_DIGITS in alike or (b"0e" in alike and _LARGE_EXPONENT.search(alike) is not None)


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
    return isinstance(value, dict) and len(value) == 1 and _BASE64 in value
