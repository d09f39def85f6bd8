"""A Valkey or Redis server to read streams from; nothing in it is changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import urlsplit

from penstock.errors import InvalidSource, MissingDependency, SourceUnavailable
from penstock.imports.source import kept_open

PAGE = 500  # entries in one answer
_TIMEOUT_SECONDS = 30.0
_SCHEMES = ("valkey", "valkeys", "redis", "rediss")
Id = tuple[int, int]  # milliseconds and number: compared as two numbers
FIRST: Id = (0, 0)
_MOST = 2**64 - 1  # either number of an id


class ValkeyReader:
    """Streams, their groups and hashes of one server."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in _SCHEMES:
            raise InvalidSource("The source of an import like this is a Valkey or Redis server: valkey://HOST:PORT/0.")
        try:
            from penstock.connect.valkey import connect

            self._client = connect(url, _TIMEOUT_SECONDS)
        except ImportError as error:
            raise MissingDependency("To read from Valkey: pip install 'penstock[valkey]'.") from error
        except ValueError:
            raise InvalidSource("The URL of the source cannot be used; write valkey://:PASSWORD@HOST:PORT/0.") from None
        host, port = parts.hostname or "localhost", parts.port or 6379
        self.name = f"valkey://{host}:{port}/{parts.path.strip('/') or 0}"
        with kept_open(self._client), self._speaking():
            self._client.ping()

    @contextmanager
    def _speaking(self) -> Iterator[None]:
        """Turn errors of the driver into ours."""
        import valkey

        try:
            yield
        except (valkey.ConnectionError, valkey.TimeoutError) as error:
            raise SourceUnavailable(f"The source does not answer: {error}.") from error
        except valkey.ValkeyError as error:
            raise InvalidSource(f"The source refuses: {error}.") from error

    def kind(self, key: str) -> str:
        """Return the type of a key: "none", "stream", …"""
        with self._speaking():
            return text_of(self._client.type(key))

    def length(self, key: str) -> int:
        """Return how many entries a stream has."""
        with self._speaking():
            return int(self._client.xlen(key))

    def groups(self, key: str) -> dict[str, Id]:
        """Return the groups of a stream, each with the last id that it was given."""
        with self._speaking():
            found = self._client.xinfo_groups(key)
        return {text_of(one["name"]): parse_id(text_of(one["last-delivered-id"])) for one in found}

    def entries(self, key: str, after: Id, last: Id | None = None) -> Iterator[list[tuple[Id, dict[bytes, bytes]]]]:
        """Yield the entries of a stream in pages, from behind an id up to another."""
        upto = "+" if last is None else show_id(last)
        while True:
            with self._speaking():
                found = self._client.xrange(key, min=f"({show_id(after)}", max=upto, count=PAGE)
            page = [(parse_id(text_of(one)), fields) for one, fields in found if fields is not None]
            if not found:
                return
            after = parse_id(text_of(found[-1][0]))
            yield page

    def named(self, key: str, ids: Sequence[Id]) -> dict[Id, dict[bytes, bytes]]:
        """Return the entries with these ids that are still there."""
        with self._speaking():
            pipeline = self._client.pipeline(transaction=False)
            for one in ids:
                pipeline.xrange(key, min=show_id(one), max=show_id(one))
            answers = pipeline.execute()
        return {one: answer[0][1] for one, answer in zip(ids, answers, strict=True) if answer}

    def waiting(self, key: str, group: str, ids: Sequence[Id]) -> set[Id]:
        """Return those of these ids that the group was given and has not acknowledged."""
        with self._speaking():
            pipeline = self._client.pipeline(transaction=False)
            for one in ids:
                pipeline.xpending_range(key, group, min=show_id(one), max=show_id(one), count=1)
            answers = pipeline.execute()
        return {one for one, answer in zip(ids, answers, strict=True) if answer}

    def pending(self, key: str, group: str, low: Id, high: Id) -> dict[Id, int]:
        """Return the ids between two that the group has not acknowledged, and how often each was given."""
        found: dict[Id, int] = {}
        start = show_id(low)
        while True:
            with self._speaking():
                page = self._client.xpending_range(key, group, min=start, max=show_id(high), count=PAGE)
            for one in page:
                found[parse_id(text_of(one["message_id"]))] = int(one["times_delivered"])
            if len(page) < PAGE:
                return found
            start = f"({text_of(page[-1]['message_id'])}"

    def pending_count(self, key: str, group: str) -> int:
        """Return how many ids the group has not acknowledged."""
        with self._speaking():
            return int(self._client.xpending(key, group)["pending"])

    def hash(self, key: str, fields: Sequence[str]) -> dict[str, str]:
        """Return the values of a hash's fields."""
        if not fields:
            return {}
        with self._speaking():
            values = self._client.hmget(key, list(fields))
        return {name: text_of(value) for name, value in zip(fields, values, strict=True) if value is not None}

    def close(self) -> None:
        """Disconnect."""
        self._client.close()


def text_of(value: bytes | str) -> str:
    """Return a name or an id as text."""
    return value if isinstance(value, str) else value.decode("utf-8", "backslashreplace")


def parse_id(text: str) -> Id:
    """Return the two numbers of an entry's id; `ValueError` if the server could not have made it."""
    milliseconds, _, number = text.partition("-")
    found = int(milliseconds), int(number or 0)
    if not all(0 <= one <= _MOST for one in found):
        raise ValueError(text)
    return found


def show_id(one: Id) -> str:
    """Return an id as the server writes it."""
    return f"{one[0]}-{one[1]}"
