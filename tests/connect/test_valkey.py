"""`Valkey` against a real server: what is refused, what is down, and what is said about it."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

import penstock
from penstock.connect import Valkey
from tests.support.byte_proxy import ByteProxy
from tests.support.messages import kinds, publish, trial_of
from tests.support.server_process import free_port
from tests.support.targets import in_valkey
from tests.support.valkey_server import ValkeyServer

OK = ("ok", "")


@pytest.fixture
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer("s3cr3t") as server:
        yield server


@pytest.mark.shows("R03")
def test_nobody_listens() -> None:
    publisher = Valkey(f"valkey://127.0.0.1:{free_port()}", stream="orders")
    assert kinds(publisher, trial_of(publisher).message()) == [("unavailable", "unreachable")]


@pytest.mark.parametrize("user", ["", ":wrong@", "nobody:s3cr3t@"])
def test_refused_credentials_are_of_the_target_and_not_of_a_message(server: ValkeyServer, user: str) -> None:
    publisher = Valkey(f"valkey://{user}127.0.0.1:{server.port}", stream="orders")
    (result,) = publish(publisher, trial_of(publisher).message())
    assert (result.kind, result.code) == ("unavailable", "refused_credentials")
    assert "s3cr3t" not in result.message and "wrong" not in result.message


def test_a_user_who_may_not_write_there(server: ValkeyServer) -> None:
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "reader", "on", ">pw", "~*", "+@read", "+@connection")
    publisher = Valkey(f"valkey://reader:pw@127.0.0.1:{server.port}", stream="orders")
    assert kinds(publisher, trial_of(publisher).message()) == [("unavailable", "refused_credentials")]


def test_a_key_that_is_no_stream_fails_its_own_message_only(server: ValkeyServer) -> None:
    with server.client() as client:
        client.set("taken", "x")
    publisher = Valkey(server.url)
    good, bad = trial_of(publisher, "orders"), trial_of(publisher, "taken")
    assert kinds(publisher, good.message(), bad.message(), good.message()) == [OK, ("retry", "wrongtype"), OK]
    assert len(in_valkey(server, "orders")) == 2


def test_a_server_without_memory_or_without_its_primary_is_unavailable(server: ValkeyServer) -> None:
    publisher = Valkey(server.url, stream="orders")
    with server.client() as client:
        client.config_set("maxmemory", "1")
        assert [kind for kind, _ in kinds(publisher, trial_of(publisher).message())] == ["unavailable"]
        client.config_set("maxmemory", "0")
        client.config_set("min-replicas-to-write", "1")
        assert [kind for kind, _ in kinds(publisher, trial_of(publisher).message())] == ["unavailable"]


def test_max_length_trims_the_stream(server: ValkeyServer) -> None:
    publisher = Valkey(server.url, stream="orders", max_length=100)
    trial = trial_of(publisher)
    publish(publisher, *(trial.message() for _ in range(1_000)))
    assert 100 <= len(in_valkey(server, "orders")) < 400


@pytest.mark.shows("R02", "R03")
@pytest.mark.parametrize("answered", [0, 1])
def test_a_connection_cut_in_the_middle_of_a_call_loses_nothing(server: ValkeyServer, answered: int) -> None:
    with ByteProxy(server.port) as proxy:
        publisher = Valkey(server.url.replace(str(server.port), str(proxy.port)), stream="orders")
        trial = trial_of(publisher)
        messages = [trial.message(b"x" * 1_000) for _ in range(500)]
        assert kinds(publisher, messages[0]) == [OK]
        proxy.cut_after(up=100_000) if not answered else proxy.cut_after(down=1_000)
        assert set(kinds(publisher, *messages)) == {("unavailable", "unreachable")}
        assert set(kinds(publisher, *messages)) == {OK}
        assert {one.id for one in in_valkey(server, "orders")} == {one.id for one in messages}
        publisher.close()


@pytest.mark.parametrize(
    "url", ["http://cache", "valkey://", "valkey://me:s3cr3t/x@cache", "valkey://me:s3cr3t@cache:port", None, 7]
)
def test_a_url_that_is_none_is_refused_without_showing_it(url: object) -> None:
    with pytest.raises(penstock.InvalidInput) as caught:
        Valkey(url)  # type: ignore[arg-type]
    assert "s3cr3t" not in str(caught.value)


def test_a_publisher_cannot_be_pickled_with_its_password() -> None:
    publisher = Valkey("valkey://:s3cr3t@cache?password=s3cr3t")
    assert publisher.target == "valkey://cache" and "s3cr3t" not in repr(publisher)
    with pytest.raises(TypeError, match="stays in its process"):
        pickle.dumps(publisher)
