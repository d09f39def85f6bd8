"""`Webhook` against an HTTP server of the tests' own."""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
from asyncio import SelectorEventLoop
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.connect import Webhook, loop_thread, verify_webhook
from penstock.connect.webhook.answer import result_of, seconds_of
from penstock.connect.webhook.redirect import is_public
from tests.support.certificates import contexts_for
from tests.support.messages import kinds, publish, trial_of
from tests.support.server_process import free_port
from tests.support.waiting import wait_until
from tests.support.webhook_target import Reply, Request, WebhookTarget

OK = ("ok", "")


@pytest.fixture
def target() -> Iterator[WebhookTarget]:
    with WebhookTarget() as target:
        yield target


def send(target: WebhookTarget, message: dict[str, Any] | None = None, **options: Any) -> tuple[Any, Request]:
    """Send one message; return its result and the first request of it."""
    publisher = Webhook(target.url, **options)
    (result,) = publish(publisher, trial_of(publisher).message(**(message or {})))
    publisher.close()
    return result, target.requests[0] if target.requests else Request("", [], b"")


# --- CloudEvents ------------------------------------------------------------------------------------------------------


@pytest.mark.shows("R06")
@pytest.mark.parametrize(
    ("payload", "content_type", "data"),
    [
        (b'{"n": 1}', "application/json", {"data": {"n": 1}}),
        (b'{\n "n": 1}', "application/problem+json", {"data": {"n": 1}}),
        (b"\x00\xff", "image/png", {"data_base64": base64.b64encode(b"\x00\xff").decode()}),
        ("é".encode(), "text/plain; charset=utf-8", {"data": "é"}),
        (b"\xe9", "text/plain", {"data_base64": "6Q=="}),
        (b"{broken", "application/json", {"data_base64": base64.b64encode(b"{broken").decode()}),
        (b"", "application/json", {"data_base64": ""}),
    ],
)
def test_a_structured_event_is_as_the_specification_has_it(
    target: WebhookTarget, payload: bytes, content_type: str, data: dict[str, Any]
) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    message = {"payload": payload, "content_type": content_type, "key": "c-1", "headers": [("traceparent", trace)]}
    result, request = send(target, message, source="/shop")
    assert result.kind == "ok"
    assert request.header("content-type") == "application/cloudevents+json; charset=utf-8"
    assert request.header("traceparent") == trace
    event = json.loads(request.body)
    stamp = event.pop("time")
    assert time.strptime(stamp[:19], "%Y-%m-%dT%H:%M:%S") and stamp.endswith("Z")
    assert len(event.pop("id")) == 36
    assert event == {
        "specversion": "1.0",
        "source": "/shop",
        "type": "contract.checked",
        "partitionkey": "c-1",
        "traceparent": trace,
        "datacontenttype": content_type,
        **data,
    }


@pytest.mark.shows("R06")
def test_a_binary_event_is_as_the_specification_has_it(target: WebhookTarget) -> None:
    message = {
        "payload": b"\x00\xff",
        "content_type": "image/png",
        "key": 'Euro € "50%"',
        "headers": [("tenant", "eu")],
    }
    result, request = send(target, message, mode="binary")
    assert result.kind == "ok" and request.body == b"\x00\xff"
    found = {name.lower(): value for name, value in request.headers}
    assert found["content-type"] == "image/png" and found["tenant"] == "eu"
    assert found["ce-partitionkey"] == "Euro%20%E2%82%AC%20%2250%25%22"  # the example of the specification
    assert found["ce-specversion"] == "1.0" and found["ce-source"] == "penstock:contract"
    assert {name for name in found if name.startswith("ce-")} == {
        "ce-specversion", "ce-id", "ce-source", "ce-type", "ce-time", "ce-partitionkey"
    }  # fmt: skip


# --- signature --------------------------------------------------------------------------------------------------------


@pytest.mark.shows("R06")
@pytest.mark.parametrize("secret", ["plain text", b"\x00bytes", "whsec_" + base64.b64encode(b"k" * 24).decode()])
def test_the_other_side_verifies_the_signature(target: WebhookTarget, secret: Any) -> None:
    _, request = send(target, secret=secret)
    headers = dict(request.headers)
    assert verify_webhook(secret, headers, request.body) == json.loads(request.body)["id"]
    for changed in (request.body + b" ", request.body.replace(b"checked", b"chucked")):
        with pytest.raises(penstock.InvalidSignature, match="does not fit"):
            verify_webhook(secret, headers, changed)
    with pytest.raises(penstock.InvalidSignature, match="does not fit"):
        verify_webhook("another", headers, request.body)
    for hours in (-1, 1):
        with pytest.raises(penstock.InvalidSignature, match="too old, or in the future"):
            verify_webhook(secret, headers, request.body, now=time.time() + 3600 * hours)


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
@pytest.mark.parametrize("value", [None, "", "x", "9" * 400, "٣", "v1,é \ud800", "v2,abc v1"])
def test_a_forged_signature_is_refused_and_nothing_else_is_raised(
    target: WebhookTarget, name: str, value: str | None
) -> None:
    _, request = send(target, secret="s")
    headers = {one.lower(): given for one, given in request.headers if one.lower() != name}
    with pytest.raises(penstock.InvalidSignature):
        verify_webhook("s", headers if value is None else {**headers, name: value}, request.body)


def test_secrets_are_rotated_with_both_at_once(target: WebhookTarget) -> None:
    _, request = send(target, secret=["old", "new"])
    for secret in ("old", "new", ["new", "newest"]):
        verify_webhook(secret, dict(request.headers), request.body)


def test_the_signature_is_that_of_standard_webhooks() -> None:
    """The example of the specification's reference implementations."""
    headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    assert verify_webhook(secret, headers, b'{"test": 2432232314}', now=1614265330) == headers["webhook-id"]


@pytest.mark.parametrize("secret", ["", b"", "whsec_!", [], 7, [7]])
def test_an_odd_secret_is_refused(secret: Any) -> None:
    with pytest.raises((penstock.InvalidInput, TypeError)):
        Webhook("http://a", secret=secret)


# --- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.shows("R01", "R06")
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (200, "ok"), (201, "ok"), (202, "ok"), (204, "ok"),
        (301, "retry"), (302, "retry"), (304, "retry"),
        (400, "permanent"), (405, "permanent"), (409, "permanent"), (410, "permanent"), (413, "permanent"),
        (415, "permanent"), (422, "permanent"),
        (403, "retry"), (404, "retry"), (408, "retry"), (425, "retry"), (500, "retry"), (504, "retry"),
        (401, "unavailable"), (407, "unavailable"), (429, "unavailable"), (502, "unavailable"), (503, "unavailable"),
    ],
)  # fmt: skip
def test_the_status_decides(target: WebhookTarget, status: int, kind: str) -> None:
    target.answer = lambda request: Reply(status, body=b"" if status in (204, 304) else b"because")
    result, _ = send(target)
    assert result.kind == kind and len(target.requests) == 1
    if kind != "ok":
        assert result.code == f"http_{status}" and result.message.startswith(f"HTTP {status}")


def test_which_statuses_mean_down_can_be_set(target: WebhookTarget) -> None:
    target.answer = lambda request: Reply(503)
    assert send(target, unavailable=[429])[0].kind == "retry"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("120", 120.0), (" 0 ", 0.0), ("-5", None), ("soon", None), ("", None), ("9" * 30, 7 * 86_400.0), ("٣", None)],
)
def test_retry_after_in_seconds(text: str, seconds: float | None) -> None:
    assert seconds_of(text) == seconds


def test_retry_after_as_a_date(target: WebhookTarget) -> None:
    now = time.time()
    target.answer = lambda request: Reply(503, {"Retry-After": formatdate(now + 600, usegmt=True)})
    result, _ = send(target)
    assert result.kind == "unavailable" and result.after_seconds is not None
    assert result.after_seconds == pytest.approx(now + 600 - time.time(), abs=60)
    assert seconds_of(formatdate(now - 600, usegmt=True)) == 0.0
    assert result_of(408, "7", "").after_seconds == 7.0


@pytest.mark.shows("R03")
def test_nobody_listens_and_no_such_host() -> None:
    for url in (f"http://127.0.0.1:{free_port()}/", "http://no-such-host.invalid/"):
        publisher = Webhook(url)
        trial = trial_of(publisher)
        assert kinds(publisher, *(trial.message() for _ in range(100))) == [("unavailable", "unreachable")] * 100
        publisher.close()


def test_after_an_answer_that_says_down_the_rest_of_the_call_is_not_tried(target: WebhookTarget) -> None:
    target.answer = lambda request: Reply(429, {"Retry-After": "30"})
    publisher = Webhook(target.url, connections=1)
    trial = trial_of(publisher)
    results = publish(publisher, *(trial.message() for _ in range(50)))
    assert {(one.kind, one.after_seconds) for one in results} == {("unavailable", 30.0)} and len(target.requests) == 1
    publisher.close()


def test_a_connection_that_is_cut_is_one_attempt_and_only_its_own_message(target: WebhookTarget) -> None:
    target.answer = lambda request: Reply(cut=b'"poison"' in request.body)
    publisher = Webhook(target.url)
    trial = trial_of(publisher)
    messages = [trial.message(b'"poison"'), *(trial.message() for _ in range(20))]
    assert kinds(publisher, *messages) == [("retry", "connection_lost"), *[OK] * 20]
    assert len(target.requests) == 21
    publisher.close()


@pytest.mark.shows("R03")
def test_a_kept_connection_that_is_gone_blames_nobody(target: WebhookTarget) -> None:
    publisher = Webhook(target.url)
    trial = trial_of(publisher)
    assert kinds(publisher, trial.message()) == [OK]
    target.answer = lambda request: Reply(cut=True)
    assert kinds(publisher, trial.message()) == [("unavailable", "connection_lost")]
    target.answer = lambda request: Reply()
    assert kinds(publisher, trial.message()) == [OK]
    publisher.close()


@pytest.mark.shows("R03")
def test_a_message_that_ends_its_connection_is_blamed_at_its_second_attempt(target: WebhookTarget) -> None:
    publisher = Webhook(target.url, connections=8)
    trial = trial_of(publisher)
    together = threading.Barrier(8)

    def all_together(request: Request) -> Reply:
        together.wait(30)
        return Reply()

    target.answer = all_together
    assert kinds(publisher, *(trial.message() for _ in range(8))) == [OK] * 8  # so many connections are kept
    target.answer = lambda request: Reply(cut=True)
    found = [kinds(publisher, trial.message()) for _ in range(2)]
    assert found == [[("unavailable", "connection_lost")], [("retry", "connection_lost")]]
    publisher.close()


def test_an_answer_that_does_not_come_and_one_without_an_end(target: WebhookTarget) -> None:
    never = threading.Event()
    target.answer = lambda request: Reply(hold=never) if b'"hang"' in request.body else Reply(endless=True)
    publisher = Webhook(target.url, timeout_seconds=1)
    trial = trial_of(publisher)
    assert kinds(publisher, trial.message(b'"hang"'), trial.message()) == [("retry", "timed_out"), OK]
    never.set()
    publisher.close()


def test_an_answer_that_trickles_is_not_read_for_ever() -> None:
    """Every byte comes in time; the answer does not."""
    listener = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65_536)
            connection.sendall(b"HTTP/1.1 200 OK\r\n")
            while not over.wait(0.05):
                connection.sendall(b"x: y\r\n")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    publisher = Webhook(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout_seconds=1)
    assert kinds(publisher, trial_of(publisher).message()) == [("retry", "timed_out")]
    over.set()
    thread.join()
    listener.close()
    publisher.close()


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\na: " + b"x" * 100_000, b"\x00" * 50, b""]
)
def test_an_answer_that_is_no_http_fails_that_message(answer: bytes) -> None:
    with serving(answer) as port:
        publisher = Webhook(f"http://127.0.0.1:{port}", timeout_seconds=5)
        assert kinds(publisher, trial_of(publisher).message()) == [("retry", "connection_lost")]
        publisher.close()


@contextmanager
def serving(answer: bytes) -> Iterator[int]:
    """A server that answers one request with these bytes, and ends the connection."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65_536)
            connection.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    with listener:
        yield listener.getsockname()[1]


@pytest.mark.shows("R03")
@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 307 -\r\nlocation: /\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 404 -\r\n\r\nCannot POST /P4TH/hook?key=K3Y of me:P4SS, bWU6UDRTUw==, T0KEN",
        b"HTTP/1.1 404 -\r\n\r\n" + b"-" * 198 + b"T0KEN",
    ],
    ids=["no http", "odd length", "odd chunk", "cut", "said again", "cut in two"],
)
def test_no_answer_brings_a_secret_into_an_error(answer: bytes) -> None:
    with serving(answer) as port:
        url = f"http://me:P4SS@127.0.0.1:{port}/P4TH/hook?key=K3Y"
        publisher = Webhook(url, headers={"x-key": "T0KEN"}, timeout_seconds=5)
        (result,) = publish(publisher, trial_of(publisher).message())
        assert result.kind != "ok"
        assert [word for word in ("P4TH", "K3Y", "P4SS", "bWU6", "T0") if word in result.message] == []
        publisher.close()


@pytest.mark.shows("R03")
def test_names_that_are_not_looked_up_in_time_are_of_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: over.wait(60) and [])
    publisher = Webhook("http://example.com/T0KEN", timeout_seconds=0.5)
    (result,) = publish(publisher, trial_of(publisher).message())
    over.set()
    assert (result.kind, result.code) == ("unavailable", "unreachable") and "T0KEN" not in result.message
    publisher.close()


# --- redirects --------------------------------------------------------------------------------------------------------


@pytest.mark.shows("X08")
@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.1:{port}/",
        "http://localhost:{port}/",
        "http://[::ffff:127.0.0.1]:{port}/",
        "http://[::1]:{port}/",
        "http://169.254.169.254/latest/meta-data/",
        "http://2130706433:{port}/",
        "http://0.0.0.0:{port}/",
        "http://10.0.0.1/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "http://a b/",
        "http://user@:80/",
    ],
)
def test_a_redirect_to_a_private_address_is_refused(target: WebhookTarget, location: str) -> None:
    with WebhookTarget() as inside:
        target.answer = lambda request: Reply(307, {"Location": location.format(port=inside.port)})
        result, _ = send(target)
        assert (result.kind, result.code) == ("permanent", "redirect_refused")
        assert inside.requests == [] and len(target.requests) == 1


@pytest.mark.parametrize("status", [307, 308])
def test_a_redirect_is_followed_with_everything_but_the_authorization(target: WebhookTarget, status: int) -> None:
    with WebhookTarget() as other:
        target.answer = lambda request: Reply(status, {"Location": f"{other.url}?a=1"})
        url = target.url.replace("http://", "http://me:s3cr3t@")
        publisher = Webhook(
            url, secret="s", headers={"x-api-key": "s3cr3t"}, allow_private_redirects=True, mode="binary"
        )
        message = trial_of(publisher).message(b"body", headers=[("Authorization", "s3cr3t"), ("tenant", "eu")])
        assert kinds(publisher, message) == [OK]
        (first,), (second,) = target.requests, other.requests
        assert first.header("x-api-key") == "s3cr3t" and str(first.header("authorization")).startswith("Basic ")
        assert "s3cr3t" not in repr(second) and second.header("authorization") is None
        assert (second.path, second.body, second.header("tenant")) == ("/hook?a=1", b"body", "eu")
        assert second.header("host") == f"127.0.0.1:{other.port}"
        verify_webhook("s", dict(second.headers), second.body)
        publisher.close()


def test_a_redirect_within_the_same_host_is_followed_and_authorized(target: WebhookTarget) -> None:
    target.answer = lambda request: Reply() if request.path == "/new" else Reply(308, {"Location": "/new"})
    result, _ = send(target, headers={"authorization": "Bearer t"})
    assert result.kind == "ok"
    assert [(one.path, one.header("authorization")) for one in target.requests] == [
        ("/hook", "Bearer t"),
        ("/new", "Bearer t"),
    ]


def test_a_redirect_to_a_name_that_is_unknown_now_is_tried_again(target: WebhookTarget) -> None:
    target.answer = lambda request: Reply(307, {"Location": "http://no-such-host.invalid/"})
    result, _ = send(target)
    assert (result.kind, result.code) == ("unavailable", "unreachable")


def test_redirects_without_an_end_and_other_redirects_are_not_followed(target: WebhookTarget) -> None:
    target.answer = lambda request: Reply(307, {"Location": target.url})
    result, _ = send(target)
    assert (result.kind, result.code, len(target.requests)) == ("permanent", "redirect_refused", 4)
    target.requests.clear()
    target.answer = lambda request: Reply(302, {"Location": target.url})
    assert send(target)[0].code == "http_302" and len(target.requests) == 1


def test_a_name_that_means_another_address_a_moment_later(
    target: WebhookTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first look-up says public; the second would say private, but is never made."""
    with WebhookTarget() as other:
        asked, connected = public_for_once(monkeypatch, other)
        target.answer = lambda request: Reply(307, {"Location": "http://rebind.example:8080/x"})
        result, _ = send(target)
        assert result.kind == "ok" and asked == ["rebind.example"]
        assert connected == ["127.0.0.1", "93.184.215.14"]
        assert [one.header("host") for one in other.requests] == ["rebind.example:8080"]


def public_for_once(monkeypatch: pytest.MonkeyPatch, other: WebhookTarget) -> tuple[list[str], list[str]]:
    """Let rebind.example:8080 be a public address that leads to another target, and private when it is asked for again.

    Returns the names that are looked up, and the addresses that are connected to.
    """
    asked: list[str] = []
    connected: list[str] = []
    real, connect = socket.getaddrinfo, SelectorEventLoop.sock_connect

    def getaddrinfo(host: Any, port: Any, *args: Any, **options: Any) -> Any:
        if host != "rebind.example":
            return real(host, port, *args, **options)
        asked.append(host)
        address = "10.0.0.1" if len(asked) > 1 else "93.184.215.14"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    async def sock_connect(self: SelectorEventLoop, connection: socket.socket, address: Any) -> None:
        connected.append(address[0])
        await connect(self, connection, ("127.0.0.1", other.port if address[1] == 8080 else address[1]))

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(SelectorEventLoop, "sock_connect", sock_connect)
    monkeypatch.setattr(loop_thread, "_new_loop", SelectorEventLoop)  # one that can be listened to
    return asked, connected


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True), ("2606:4700::1111", True), ("127.0.0.1", False), ("::1", False), ("fe80::1%eth0", False),
        ("::ffff:10.0.0.1", False), ("2002:7f00:1::", False), ("64:ff9b::a9fe:a9fe", False), ("100.64.0.1", False),
        ("224.0.0.1", False), ("0.0.0.0", False), ("::", False), ("fd00::1", False),
        ("::7f00:1", False),
        ("::ffff:0:7f00:1", False),
        ("64:ff9b:1::a00:1", False),
        ("fec0::1", False),
    ],
)  # fmt: skip
def test_which_addresses_are_public(address: str, public: bool) -> None:
    assert is_public(address) is public


# --- hostile input ----------------------------------------------------------------------------------------------------


@pytest.mark.shows("R10")
@pytest.mark.parametrize(
    "header",
    [
        ("a", "x\r\nHost: evil"), ("a", "x\ny"), ("a", b"\x00"), ("a", " x"), ("a", b"\x7f"), ("a\r\nb", "x"),
        ("a b", "x"), ("", "x"), ("ä", "x"), ("a:", "x"), ("Host", "evil"), ("Content-Length", "0"),
        ("Transfer-Encoding", "chunked"), ("webhook-signature", "v1,x"), ("ce-id", "x"), ("CE-Type", "x"),
        ("Connection", "close"), ("Content-Type", "text/html"),
    ],
)  # fmt: skip
def test_a_header_that_http_cannot_carry_fails_its_message_alone(target: WebhookTarget, header: Any) -> None:
    publisher = Webhook(target.url)
    trial = trial_of(publisher)
    refused = trial.message(headers=[header])
    assert kinds(publisher, trial.message(), refused, trial.message()) == [OK, ("permanent", "invalid_request"), OK]
    assert len(target.requests) == 2
    publisher.close()


@pytest.mark.shows("R10")
def test_a_content_type_that_would_arrive_changed_is_refused(target: WebhookTarget) -> None:
    result, _ = send(target, {"content_type": "text/plain "}, mode="binary")
    assert (result.kind, result.code, target.requests) == ("permanent", "invalid_request", [])


@pytest.mark.shows("R10")
@pytest.mark.parametrize(
    "url", ["ftp://a", "http://", "http://a\r\nb", "http://256.1.1.1/", "nonsense", "http://a:99999/", "http:///x"]
)
def test_a_topic_that_is_no_url_fails_its_message_alone(target: WebhookTarget, url: str) -> None:
    publisher = Webhook(target.url)
    good, bad = trial_of(publisher), trial_of(publisher, url)
    assert kinds(publisher, good.message(), bad.message()) == [OK, ("permanent", "invalid_request")]
    publisher.close()


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("ftp://a", {}),
        ("http://me:s3cr3t/x@a", {}),
        (None, {}),
        ("http://a", {"mode": "fancy"}),
        ("http://a", {"connections": 0}),
        ("http://a", {"headers": {"x-key": "s3cr3t\r\nb: c"}}),
        ("http://a", {"headers": {"host": "s3cr3t"}}),
    ],
)
def test_what_cannot_be_a_webhook_is_refused_without_showing_secrets(url: Any, options: Any) -> None:
    with pytest.raises(penstock.InvalidInput) as caught:
        Webhook(url, **options)
    assert "s3cr3t" not in str(caught.value)


def test_an_url_with_spaces_umlauts_and_a_query_is_sent_as_it_should(target: WebhookTarget) -> None:
    publisher = Webhook(f"http://127.0.0.1:{target.port}/ä/%20?q=ö&x=1+2")
    assert kinds(publisher, trial_of(publisher).message()) == [OK]
    assert target.requests[0].path == "/%C3%A4/%20?q=%C3%B6&x=1+2"
    publisher.close()


def test_closing_while_a_call_waits_ends_the_call(target: WebhookTarget) -> None:
    hold = threading.Event()
    target.answer = lambda request: Reply(hold=hold)
    publisher = Webhook(target.url)
    results: list[Any] = []
    message = trial_of(publisher).message()
    thread = threading.Thread(target=lambda: results.extend(kinds(publisher, message)))
    thread.start()
    wait_until(lambda: bool(target.requests), "the request")
    publisher.close()
    thread.join(30)
    hold.set()
    assert results == [("unavailable", "ConnectionAbortedError")]


# --- TLS --------------------------------------------------------------------------------------------------------------


@pytest.mark.shows("R06")
def test_requests_go_over_tls_to_whom_the_context_trusts(tmp_path: Path) -> None:
    server, trusting = contexts_for(tmp_path, "127.0.0.1")
    with WebhookTarget(tls=server) as target:
        result, request = send(target, tls=trusting)
        assert result.kind == "ok" and request.path == "/hook"


@pytest.mark.shows("R06", "X09")
@pytest.mark.parametrize("wrong", ["nobody vouches", "another name"])
def test_whoever_cannot_show_who_he_is_gets_nothing(tmp_path: Path, wrong: str) -> None:
    server, trusting = contexts_for(tmp_path, "127.0.0.1" if wrong == "nobody vouches" else "shop.example")
    with WebhookTarget(tls=server) as target:
        result, _ = send(target, tls=None if wrong == "nobody vouches" else trusting)
        assert (result.kind, result.code, target.requests) == ("unavailable", "unreachable", [])


@pytest.mark.shows("R06", "X09")
@pytest.mark.parametrize("name", ["rebind.example", "93.184.215.14"])
def test_after_a_redirect_the_certificate_is_that_of_the_name(
    target: WebhookTarget, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    """The connection goes to the address that was looked up; who is there still has to be the one that was named."""
    server, trusting = contexts_for(tmp_path, name)
    with WebhookTarget(tls=server) as other:
        public_for_once(monkeypatch, other)
        target.answer = lambda request: Reply(307, {"Location": "https://rebind.example:8080/there"})
        result, _ = send(target, tls=trusting)
        if name == "rebind.example":
            assert result.kind == "ok" and [one.path for one in other.requests] == ["/there"]
        else:
            assert (result.kind, other.requests) == ("unavailable", [])
