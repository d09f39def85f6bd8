"""`Valkey`: publish to the streams of a Valkey or Redis server."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from penstock.connect.address import shown
from penstock.connect.per_process import PerProcess
from penstock.connect.target_options import check_count, check_driver, check_name, check_seconds
from penstock.declare.publisher import OK, Message, Result
from penstock.errors import InvalidPublisher

HEADER = b"header:"  # begins the names of fields that are headers
_SCHEMES = ("valkey", "valkeys", "redis", "rediss")
_UNAVAILABLE = ("BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS", "OOM", "READONLY", "TRYAGAIN")
_CODES = {"BusyLoadingError": "LOADING", "ReadOnlyError": "READONLY", "OutOfMemoryError": "OOM"}
_REFUSED = ("NOAUTH", "NOPERM", "WRONGPASS")


class Valkey:
    """Adds every message to a stream as one entry.

    Its fields are `event_id`, `event_type`, `content_type`, `key` (if there is one), `payload`, and `header:NAME` for
    each header. `max_length` trims the stream to about so many entries.
    """

    batch = 1_000

    def __init__(
        self, url: str, *, stream: str | None = None, max_length: int | None = None, timeout_seconds: float = 10.0
    ) -> None:
        check_driver("valkey", "valkey")
        self.topic = check_name(stream, "stream")
        self.target = "a unix socket" if str(url).startswith("unix://") else shown(url, _SCHEMES)
        self._trim = () if max_length is None else ("MAXLEN", "~", check_count(max_length, "max_length"))
        _check_query(url)
        self._client: PerProcess[Any] = PerProcess(
            partial(connect, url, check_seconds(timeout_seconds)), lambda client: client.close()
        )

    def publish(self, messages: Sequence[Message]) -> Sequence[Result] | None:
        """Send all entries in one pipeline."""
        import valkey

        commands = [("XADD", message.topic, *self._trim, "*", *fields_of(message)) for message in messages]
        pool = self._client.get().connection_pool
        failed: dict[int, Result] = {}
        try:
            connection = pool.get_connection("XADD")
        except valkey.ValkeyError as error:  # of any kind: it speaks of the connection, and of no message
            return [unavailable(error)] * len(messages)
        try:  # as a pipeline of the client does it, without its work for each answer
            connection.send_packed_command(connection.pack_commands(commands))
            for place in range(len(messages)):
                try:
                    connection.read_response()
                except valkey.ResponseError as error:
                    failed[place] = _result(error)
        except (valkey.ConnectionError, valkey.TimeoutError) as error:
            connection.disconnect()
            return [unavailable(error)] * len(messages)
        except BaseException:
            connection.disconnect()  # answers may be left on it
            raise
        finally:
            pool.release(connection)
        return [failed.get(place, OK) for place in range(len(messages))] if failed else None

    def close(self) -> None:
        """Disconnect."""
        self._client.drop()


def connect(url: str, timeout: float, **options: Any) -> Any:
    """Make a client that repeats nothing by itself."""
    import valkey
    from valkey.backoff import NoBackoff
    from valkey.retry import Retry

    return valkey.Valkey.from_url(
        url, socket_timeout=timeout, socket_connect_timeout=timeout, retry=Retry(NoBackoff(), 0), **options
    )


def _check_query(url: str) -> None:
    """Check the options in a URL, which the client takes as they are and trips over when it connects."""
    if "?" in url:
        try:
            connect(url, 1.0).connection_pool.make_connection()
        except (TypeError, ValueError):
            raise InvalidPublisher("The client of Valkey does not know an option in the query of the URL.") from None


def fields_of(message: Message) -> list[str | bytes]:
    """Return the fields of an entry, flat."""
    fields: list[str | bytes] = [
        *("event_id", message.id, "event_type", message.type),
        *("content_type", message.content_type, "payload", message.payload),
    ]
    if message.key is not None:
        fields += ("key", message.key)
    for name, value in message.headers:
        fields += (HEADER + name.encode(), value)
    return fields


def unavailable(error: Exception) -> Result:
    """Return the result of a server that cannot be reached, or lets nobody in."""
    return Result.unavailable("refused_credentials" if _is_refusal(error) else "unreachable", str(error))


def _is_refusal(error: Exception) -> bool:
    name = type(error).__name__  # the client takes the code out of the text, and has classes for some
    return str(error).startswith(_REFUSED) or "Auth" in name or "NoPermission" in name


def _result(answer: Exception) -> Result:
    if _is_refusal(answer):
        return unavailable(answer)
    text = str(answer)
    code = _CODES.get(type(answer).__name__) or text.partition(" ")[0]
    if code in _UNAVAILABLE:
        return Result.unavailable(code.lower(), text)
    return Result.retry(code.lower() if code.isupper() else "refused", text)
