"""The signature of a webhook, by the rules of Standard Webhooks: an HMAC of id, time stamp and body."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Mapping

from penstock.errors import InvalidInput, InvalidSignature

_PREFIX = "whsec_"


def key_of(secret: str | bytes) -> bytes:
    """Return the key of a secret: any text or bytes, or base64 after `whsec_`."""
    if isinstance(secret, str) and secret.startswith(_PREFIX):
        try:
            return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidInput("A secret that begins with whsec_ continues in base64.") from error
    key = secret.encode() if isinstance(secret, str) else secret
    if not isinstance(key, bytes) or not key:
        raise InvalidInput("A secret is text or bytes, and not empty.")
    return key


def sign(key: bytes, message_id: str, timestamp: int, body: bytes) -> str:
    """Return the signature as it stands in `webhook-signature`."""
    signed = hmac.new(key, b"%s.%d.%s" % (message_id.encode(), timestamp, body), hashlib.sha256)
    return f"v1,{base64.b64encode(signed.digest()).decode()}"


def verify(
    secret: str | bytes,
    headers: Mapping[str, str],
    body: bytes,
    *,
    tolerance_seconds: float = 300.0,
    now: float | None = None,
) -> str:
    """Check the signature and the age of a webhook, where it is received; return the event's id.

    Raises `InvalidSignature`. The same id may come twice: remember those that you have handled.

    >>> body = b'{"id": "7"}'
    >>> headers = {"webhook-id": "7", "webhook-timestamp": "1700000000"}
    >>> headers["webhook-signature"] = sign(key_of("secret"), "7", 1700000000, body)
    >>> verify("secret", headers, body, now=1700000010.0)
    '7'
    """
    found = {name.lower(): value for name, value in headers.items()}
    try:
        message_id, stamp, given = (found[f"webhook-{name}"] for name in ("id", "timestamp", "signature"))
        timestamp = int(stamp)
    except KeyError as error:
        raise InvalidSignature(f"The header {error.args[0]} is missing.") from None
    except ValueError:
        raise InvalidSignature("webhook-timestamp is not a number of seconds.") from None
    if abs((time.time() if now is None else now) - timestamp) > tolerance_seconds:
        raise InvalidSignature("The time stamp is too old, or in the future.")
    wanted = sign(key_of(secret), message_id, timestamp, body).encode()
    if not any(hmac.compare_digest(wanted, one.encode()) for one in given.split()):
        raise InvalidSignature("The signature does not fit the body.")
    return message_id
