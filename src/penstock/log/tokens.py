"""Tokens of the HTTP service: created, listed, revoked, and recognized by the hash of their secret."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import orjson

from penstock.core.access import Access, Grant, parse_grants, texts_of
from penstock.core.event import check_name
from penstock.errors import TokenExists, UnknownToken
from penstock.log import audit, checks
from penstock.log.transact import look, transact
from penstock.stores.base import Row, Store, Transaction

ENVIRONMENT: Final = "PENSTOCK_TOKEN"  # the name in the audit of the token that the environment brings
_RESERVED: Final = (ENVIRONMENT, "loopback")
_PREFIX: Final = "pst_"  # so that scanners find secrets that were published by mistake


@dataclass(frozen=True, slots=True)
class Token:
    """A token as stored: without its secret."""

    name: str
    grants: tuple[Grant, ...]
    created_at: datetime
    created_by: str
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token that was just created; only here is its secret."""

    name: str
    secret: str
    grants: tuple[Grant, ...]

    def __repr__(self) -> str:
        return f"<NewToken {self.name}>"  # no secret in a log or a traceback


def create(store: Store, name: str, scopes: Iterable[str], by: str | None) -> NewToken:
    """Create a token of 256 random bits."""
    grants, author = parse_grants(scopes), checks.author(by)
    if check_name(name, "name") in _RESERVED:
        raise TokenExists(f"The name {name!r} is reserved.")
    new = NewToken(name, _PREFIX + secrets.token_urlsafe(32), grants)

    def work(tx: Transaction) -> None:
        texts = texts_of(grants)
        stored = {"name": name, "hash": hash_of(new.secret), "scopes": orjson.dumps(texts).decode()}
        if not tx.rows("token.add", now=tx.now(), by=author, **stored):
            raise TokenExists(f"There is, or was, a token {name!r}.")
        audit.record(tx, author, "create_token", detail={"token": name, "scopes": texts})

    transact(store, work)
    return new


def listed(store: Store) -> list[Token]:
    """Return all tokens, oldest first."""
    return [_token(row) for row in look(store, lambda tx: tx.rows("token.all"))]


def revoke(store: Store, name: str, by: str | None) -> Token:
    """Revoke a token; the same call again is harmless."""
    author = checks.author(by)
    check_name(name, "name")

    def work(tx: Transaction) -> Token:
        row = tx.one("token.revoke", name=name, now=tx.now())
        if row is None:
            raise UnknownToken(f"There is no token {name!r}.")
        audit.record(tx, author, "revoke_token", detail={"token": name})
        return _token(row)

    return transact(store, work)


def access(store: Store, hashed: bytes) -> Access | None:
    """Return what the token with this hash allows; None if there is none, or if it was revoked."""
    row = look(store, lambda tx: tx.one("token.find", hash=hashed))
    return None if row is None else Access(row.name, parse_grants(orjson.loads(row.scopes)))


def hash_of(secret: str) -> bytes:
    """Return what is stored of a secret. It is random and long, so that a plain hash cannot be reversed."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _token(row: Row) -> Token:
    return Token(row.name, parse_grants(orjson.loads(row.scopes)), row.created_at, row.created_by, row.revoked_at)
