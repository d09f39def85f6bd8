"""`Webhook`: publish over HTTP, as CloudEvents, signed."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from penstock.connect.address import shown
from penstock.connect.loop_thread import LoopThread
from penstock.connect.per_process import PerProcess
from penstock.connect.target_options import check_count, check_driver, check_name, check_seconds, check_statuses
from penstock.connect.webhook import cloud_event
from penstock.connect.webhook.answer import UNAVAILABLE, result_of
from penstock.connect.webhook.cloud_event import Pair
from penstock.connect.webhook.exchange import Answer, Connections, Cut, Unreachable
from penstock.connect.webhook.place import Place
from penstock.connect.webhook.redirect import Refused, follow
from penstock.connect.webhook.signature import Secret, keys_of, sign
from penstock.declare.publisher import OK, Message, Result
from penstock.errors import InvalidPublisher

_REDIRECTS = 3
_SHOWN = 200  # characters of an answer, in an error
_SHORTEST = 4  # characters of what is hidden there: less is no secret, and is in every text
_SAME_METHOD = (307, 308)
_PERSONAL = frozenset([b"authorization", b"cookie", b"proxy-authorization"])  # for one host only, whoever set them

Request = Callable[[Message], tuple[list[Pair], bytes]]


class Webhook:
    """Sends every message as a POST, up to `connections` at once, and reads the answer.

    `mode="structured"` has the whole CloudEvent in the body; `mode="binary"` has the payload as it is, and the rest in
    `ce-` headers. With `secret` requests are signed (see `verify_webhook`); with several, once with each. `headers` are
    added to every request, for example an authorization, and replace the event's own of the same name. `unavailable`
    are the statuses that say that the target is down. The topic is the URL; a rule may name another one.
    """

    batch = 1_000

    def __init__(
        self,
        url: str,
        *,
        secret: Secret | Sequence[Secret] | None = None,
        mode: str = "structured",
        headers: Mapping[str, str] | None = None,
        connections: int = 32,
        timeout_seconds: float = 10.0,
        source: str | None = None,
        allow_private_redirects: bool = False,
        unavailable: Collection[int] = UNAVAILABLE,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        if mode not in ("structured", "binary"):
            raise InvalidPublisher(f'mode is "structured" or "binary", not {mode!r}.')
        check_driver("aiohttp", "webhook")
        if tls is not None and not isinstance(tls, ssl.SSLContext):
            raise InvalidPublisher(f"tls is an ssl.SSLContext, not {type(tls).__name__}.")
        self.target = shown(url, ("http", "https"))
        self.topic = url
        self._keys = None if secret is None else keys_of(secret)
        self._encode = cloud_event.structured if mode == "structured" else cloud_event.binary
        private = _private(headers or {})
        self._taken = {name.lower() for name, _ in private}
        self._source = check_name(source, "source")
        # Nothing here knows the publisher: what nobody uses is freed at once, and not in a forked child.
        network = partial(Connections, check_seconds(timeout_seconds), tls)
        most, down = check_count(connections, "connections"), check_statuses(unavailable)
        make = partial(_Client, most, network, private, allow_private_redirects, down)
        self._client = PerProcess(make, lambda client: client.close())

    def publish(self, messages: Sequence[Message]) -> Sequence[Result] | None:
        """Send all messages, and wait for their answers."""
        results = self._client.get().send(messages, self._request)
        return None if all(one is OK for one in results) else results

    def _request(self, message: Message) -> tuple[list[Pair], bytes]:
        """Return headers and body; `ValueError` if HTTP cannot carry them."""
        headers, body = self._encode(message, self._source or f"penstock:{message.stream}")
        if message.headers:
            headers += [pair for pair in cloud_event.own_headers(message) if pair[0].lower() not in self._taken]
        if self._keys is not None:
            stamp = int(time.time())
            headers += [
                (b"webhook-id", message.id.encode()),
                (b"webhook-timestamp", b"%d" % stamp),
                (b"webhook-signature", sign(self._keys, message.id, stamp, body).encode()),
            ]
        return headers, body

    def close(self) -> None:
        """Close all connections."""
        self._client.drop()


class _Client:
    """The connections of one process."""

    def __init__(
        self,
        most: int,
        network: Callable[[], Connections],
        private: Sequence[Pair],
        allow_private: bool,
        unavailable: frozenset[int],
    ) -> None:
        self._most = most
        self._free = asyncio.Semaphore(most)  # places, for all calls together
        self._queue = 0  # of those that wait for one
        self._connections = network()
        self._private = private
        self._secrets = [word for _, value in private for word in value.decode().split()]
        self._allow_private = allow_private
        self._unavailable = unavailable
        self._loop = LoopThread("webhook")

    def send(self, messages: Sequence[Message], request: Request) -> list[Result]:
        return self._loop.run(self._send(messages, request))

    async def _send(self, messages: Sequence[Message], request: Request) -> list[Result]:
        results = [OK] * len(messages)
        places = iter(range(len(messages)))
        down: list[Result] = []

        async def work() -> None:
            await self._take_place()
            try:
                for place in places:
                    # If the target is down, the others would fail, too.
                    results[place] = down[0] if down else await self._one(messages[place], request)
                    if results[place].kind == "unavailable":
                        down.append(results[place])
                    if self._queue:
                        self._free.release()
                        await self._take_place()
            finally:
                self._free.release()

        await asyncio.gather(*(work() for _ in range(min(self._most, len(messages)))))
        return results

    async def _take_place(self) -> None:
        """Wait for one of the places. Whoever has one keeps it from message to message, as long as nobody waits."""
        self._queue += 1
        try:
            await self._free.acquire()
        finally:
            self._queue -= 1

    async def _one(self, message: Message, request: Request) -> Result:
        try:
            headers, body = request(message)
            return await self._post(Place.of(message.topic), headers, body)
        except Unreachable as error:
            return Result.unavailable("unreachable", str(error))
        except TimeoutError:
            return Result.retry("timed_out", "The target did not answer in time.")
        except Cut as error:  # on a connection of its own, this message may be why
            lost = Result.unavailable if error.reused else Result.retry
            return lost("connection_lost", str(error))
        except Refused as error:
            return Result.permanent("redirect_refused", str(error))
        except ValueError as error:
            return Result.permanent("invalid_request", str(error))

    async def _post(self, first: Place, headers: Sequence[Pair], body: bytes) -> Result:
        """Send a request and follow its redirects. To another host goes nothing that is meant for the first."""
        place = first
        for _ in range(_REDIRECTS + 1):
            ours = place is first or place.origin == first.origin
            sent = self._with_private(first, headers) if ours else _impersonal(headers)
            answer = await self._connections.post(place, sent, body)
            location = answer.headers.get(b"location")
            if answer.status not in _SAME_METHOD or location is None:
                return self._result(answer, first)
            place = await follow(place, location.decode("latin-1"), allow_private=self._allow_private)
        raise Refused(f"more than {_REDIRECTS} redirects")

    def _with_private(self, first: Place, headers: Sequence[Pair]) -> Sequence[Pair]:
        if first.authorization is None:
            return [*headers, *self._private]
        return [*_impersonal(headers), *self._private, (b"authorization", first.authorization.encode())]

    def _result(self, answer: Answer, first: Place) -> Result:
        if 200 <= answer.status < 300:
            return OK
        after = answer.headers.get(b"retry-after")
        text = answer.text and _hidden(answer.text, [*first.secrets, *self._secrets])[:_SHOWN]
        return result_of(answer.status, None if after is None else after.decode("latin-1"), text, self._unavailable)

    def close(self) -> None:
        try:
            self._loop.run(self._connections.close())
        finally:
            self._loop.stop()


def _private(headers: Mapping[str, str]) -> list[Pair]:
    """Return the headers of every request; what is wrong with a value is said without showing it."""
    if not isinstance(headers, Mapping):
        raise InvalidPublisher(f"headers is a mapping of names to text, not {type(headers).__name__}.")
    pairs = [(b"user-agent", b"penstock")] if not any(str(name).lower() == "user-agent" for name in headers) else []
    for name, value in headers.items():
        if not isinstance(name, str) or not cloud_event.is_free(name):
            raise InvalidPublisher(f"headers has {name!r:.80}, which cannot be a header of every request.")
        if not isinstance(value, str) or not value.isprintable() or value != value.strip():
            raise InvalidPublisher(f"The value of the header {name!r:.80} is printable text without spaces around it.")
        pairs.append((name.encode(), value.encode()))
    return pairs


def _impersonal(headers: Sequence[Pair]) -> list[Pair]:
    return [pair for pair in headers if pair[0].lower() not in _PERSONAL]


def _hidden(text: str, secrets: Sequence[str]) -> str:
    """Return an answer without our own secrets: servers say paths and tokens again that they do not know."""
    for one in sorted(set(secrets), key=len, reverse=True):
        if len(one) >= _SHORTEST:
            text = text.replace(one, "***")
    return text
