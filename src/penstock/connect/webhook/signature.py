"""The signature of a webhook, by the rules of Standard Webhooks: an HMAC of id, time stamp and body."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Mapping, Sequence

from penstock.errors import InvalidInput, InvalidSignature

Secret = str | bytes
_PREFIX = "whsec_"
_DIGITS = 12  # of a time stamp, at most


def keys_of(secret: Secret | Sequence[Secret]) -> list[bytes]:
    """Return the keys of one secret or several: any text or bytes, or base64 after `whsec_`."""
    given = [secret] if isinstance(secret, str | bytes) else list(secret)
    if not given:
        raise InvalidInput("A webhook is signed with at least one secret.")
    return [_key_of(one) for one in given]


def _key_of(secret: Secret) -> bytes:
    if isinstance(secret, str) and secret.startswith(_PREFIX):
        try:
            key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
        except (binascii.Error, ValueError):
            raise InvalidInput("A secret that begins with whsec_ continues in base64.") from None
    else:
        key = secret.encode() if isinstance(secret, str) else secret
    if not isinstance(key, bytes) or not key:
        raise InvalidInput("A secret is text or bytes, and not empty.")
    return key


def sign(keys: Sequence[bytes], message_id: str, timestamp: int, body: bytes) -> str:
    """Return the signatures, one for each key, as they stand in `webhook-signature`."""
    signed = b"%s.%d.%s" % (message_id.encode(errors="replace"), timestamp, body)
    made = (hmac.digest(key, signed, hashlib.sha256) for key in keys)
    return " ".join(f"v1,{base64.b64encode(one).decode()}" for one in made)


def verify(
    secret: Secret | Sequence[Secret],
    headers: Mapping[str, str],
    body: bytes,
    *,
    tolerance_seconds: float = 300.0,
    now: float | None = None,
) -> str:
    """Check the signature and the age of a webhook, where it is received; return the event's id.

    Raises `InvalidSignature`. While secrets are rotated, give both. The same id may come twice: remember those that you
    have handled.

    >>> body = b'{"id": "7"}'
    >>> headers = {"webhook-id": "7", "webhook-timestamp": "1700000000"}
    >>> headers["webhook-signature"] = sign(keys_of("secret"), "7", 1700000000, body)
    >>> verify("secret", headers, body, now=1700000010.0)
    '7'
    """
    if not isinstance(body, bytes):
        raise InvalidInput(f"body is the bytes that came in, not {type(body).__name__}.")
    keys = keys_of(secret)
    found = {name.lower(): value for name, value in headers.items()}
    try:
        message_id, stamp, given = (found[f"webhook-{name}"] for name in ("id", "timestamp", "signature"))
    except KeyError as error:
        raise InvalidSignature(f"The header {error.args[0]} is missing.") from None
    if not stamp.isascii() or not stamp.isdecimal() or len(stamp) > _DIGITS:
        raise InvalidSignature("webhook-timestamp is not a number of seconds.")
    if abs((time.time() if now is None else now) - int(stamp)) > tolerance_seconds:
        raise InvalidSignature("The time stamp is too old, or in the future.")
    wanted = sign(keys, message_id, int(stamp), body).encode().split()
    offered = given.encode(errors="replace").split()
    if not any(hmac.compare_digest(one, other) for one in wanted for other in offered):
        raise InvalidSignature("The signature does not fit the body.")
    return message_id
