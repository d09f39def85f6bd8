"""`Nats` against a real server with JetStream."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import penstock
from penstock.connect import Nats
from tests.support.byte_proxy import ByteProxy
from tests.support.messages import kinds, publish, trial_of
from tests.support.nats_server import NatsServer
from tests.support.server_process import free_port
from tests.support.targets import in_nats

OK = ("ok", "")


@pytest.fixture
def server() -> Iterator[NatsServer]:
    with NatsServer("s3cr3t") as server:
        server.create_stream("ORDERS", "orders", "orders.>")
        yield server


@pytest.fixture
def publisher(server: NatsServer) -> Iterator[Nats]:
    made = Nats(server.url, subject="orders")
    yield made
    made.close()


@pytest.mark.shows("R03")
def test_nobody_listens() -> None:
    publisher = Nats(f"nats://127.0.0.1:{free_port()}", subject="orders")
    assert kinds(publisher, trial_of(publisher).message()) == [("unavailable", "unreachable")]


@pytest.mark.parametrize("user", ["", "me:wrong@", "token@"])
def test_refused_credentials_are_of_the_target_and_not_of_a_message(server: NatsServer, user: str) -> None:
    publisher = Nats(f"nats://{user}127.0.0.1:{server.port}", subject="orders")
    (result,) = publish(publisher, trial_of(publisher).message())
    assert (result.kind, result.code) == ("unavailable", "refused_credentials")
    assert "wrong" not in result.message and "@" not in publisher.target


def test_a_user_who_may_not_publish_there() -> None:
    users = 'authorization {users: [{user: me, password: pw, permissions: {publish: ["orders"]}}]}'
    server = NatsServer(None, "-c", "users.conf")
    (server.folder / "users.conf").write_text(users)
    with server:
        publisher = Nats(f"nats://me:pw@127.0.0.1:{server.port}", subject="secrets", timeout_seconds=1)
        assert kinds(publisher, trial_of(publisher).message()) == [("unavailable", "refused_credentials")]
        publisher.close()


def test_a_subject_without_a_stream_fails_its_own_message_only(publisher: Nats, server: NatsServer) -> None:
    good, bad, odd = (trial_of(publisher, one) for one in ("orders.eu", "nowhere", "a b"))
    assert kinds(publisher, good.message(), bad.message(), odd.message(), good.message()) == [
        OK,
        ("retry", "no_stream"),
        ("permanent", "invalid_message"),
        OK,
    ]
    assert len(in_nats(server, "ORDERS")) == 2


@pytest.mark.shows("R01")
@pytest.mark.parametrize("answer", [b"pong", b'{"error"', b'[1, "error"]', b'{"stream":1,"seq":2}'])
def test_an_answer_of_somebody_who_is_no_stream_does_not_count(
    publisher: Nats, server: NatsServer, answer: bytes
) -> None:
    stored, lost = trial_of(publisher), trial_of(publisher, "services.shop")

    async def serve(client: Any) -> Any:
        async def respond(message: Any) -> None:
            await message.respond(answer)

        await client.subscribe("services.*", cb=respond)
        await client.flush()
        return await asyncio.to_thread(kinds, publisher, stored.message(), lost.message())

    assert server.ask(serve) == [OK, ("retry", "not_stored")]


def test_a_subject_that_would_end_the_connection_fails_its_own_message_only(publisher: Nats) -> None:
    good, long = trial_of(publisher), trial_of(publisher, "orders." + "x" * 5_000)
    assert kinds(publisher, good.message(), long.message(), good.message()) == [
        OK,
        ("permanent", "invalid_message"),
        OK,
    ]


def test_a_message_too_large_for_the_server_or_its_stream_is_permanent(publisher: Nats, server: NatsServer) -> None:
    server.create_stream("SMALL", "small", max_msg_size=1_000)
    trial, small = trial_of(publisher), trial_of(publisher, "small")
    almost = trial.message(b"x" * 1_048_500)  # fits, but not with its headers
    too_large = ("permanent", "message_too_large")
    assert kinds(publisher, trial.message(), almost, small.message(b"x" * 2_000), trial.message()) == [
        OK,
        too_large,
        too_large,
        OK,
    ]
    assert len(in_nats(server, "ORDERS")) == 2


def test_a_stream_that_is_full_is_unavailable(publisher: Nats, server: NatsServer) -> None:
    from nats.js.api import DiscardPolicy

    server.create_stream("FULL", "full", max_msgs=1, discard=DiscardPolicy.NEW)
    full = trial_of(publisher, "full")
    assert [kind for kind, _ in kinds(publisher, full.message(), full.message())] == ["ok", "unavailable"]


@pytest.mark.shows("R10")
@pytest.mark.parametrize(
    "header",
    [
        ("Nats-Rollup", "all"),
        ("nats-expected-stream", "X"),
        ("a b", "x"),
        ("", "x"),
        ("a", " x"),
        ("a", "x\r\nNats-Rollup: all"),
        ("a", b"\xff"),
    ],
)
def test_a_header_that_would_arrive_changed_or_steer_the_server_is_refused(
    publisher: Nats, server: NatsServer, header: Any
) -> None:
    trial = trial_of(publisher)
    assert kinds(publisher, trial.message(), trial.message(headers=[header]), trial.message()) == [
        OK,
        ("permanent", "invalid_header"),
        OK,
    ]
    assert len(in_nats(server, "ORDERS")) == 2


@pytest.mark.shows("R02")
def test_what_comes_again_within_the_window_is_stored_once(publisher: Nats, server: NatsServer) -> None:
    trial = trial_of(publisher)
    messages = [trial.message() for _ in range(50)]
    assert set(kinds(publisher, *messages)) | set(kinds(publisher, *messages)) == {OK}
    assert len(in_nats(server, "ORDERS")) == 50


@pytest.mark.shows("R02", "R03")
@pytest.mark.parametrize("way", ["up", "down"])
def test_a_connection_cut_in_the_middle_of_a_call_loses_nothing(server: NatsServer, way: str) -> None:
    with ByteProxy(server.port) as proxy:
        url = server.url.replace(str(server.port), str(proxy.port))
        publisher = Nats(url, subject="orders", timeout_seconds=600)  # nobody waits for that
        trial = trial_of(publisher)
        messages = [trial.message(b"x" * 1_000) for _ in range(200)]
        assert kinds(publisher, messages[0]) == [OK]
        proxy.cut_after(**{way: 50_000 if way == "up" else 2_000})
        assert set(kinds(publisher, *messages)) <= {OK, ("unavailable", "unreachable")}
        assert proxy.cuts == 1
        assert set(kinds(publisher, *messages)) == {OK}
        assert {one.id for one in in_nats(server, "ORDERS")} == {one.id for one in messages}
        publisher.close()


@pytest.mark.shows("R03")
def test_a_server_that_does_not_answer_is_unavailable_and_used_again_when_it_does(server: NatsServer) -> None:
    publisher = Nats(server.url, subject="orders", timeout_seconds=1)
    trial = trial_of(publisher)
    assert kinds(publisher, trial.message()) == [OK]
    server.pause()
    assert set(kinds(publisher, *(trial.message(b"x" * 100_000) for _ in range(100)))) == {("unavailable", "timed_out")}
    server.resume()
    assert kinds(publisher, trial.message()) == [OK]
    publisher.close()


@pytest.mark.parametrize("url", ["http://a", "nats://", "nats://a,valkey://b", "nats://me:s3cr3t/x@a"])
def test_a_url_that_is_none_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(penstock.InvalidInput) as caught:
        Nats(url)
    assert "s3cr3t" not in str(caught.value)
