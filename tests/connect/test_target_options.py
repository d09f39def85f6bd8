"""Options of publishers: what is wrong is refused where it enters, and not by failing one event after the other."""

from __future__ import annotations

from typing import Any

import pytest

import penstock
from penstock.connect import Callable, JsonLines, Kafka, Nats, Valkey, Webhook, target_options
from tests.support.messages import kinds, trial_of
from tests.support.valkey_server import ValkeyServer

KAFKA, NATS, VALKEY, WEBHOOK = (Kafka, "a:9"), (Nats, "nats://a"), (Valkey, "valkey://a"), (Webhook, "http://a")


@pytest.mark.shows("R06")
@pytest.mark.parametrize("seconds", [0, -1, "5", None, float("nan"), float("inf"), True])
@pytest.mark.parametrize("made", [KAFKA, NATS, VALKEY, WEBHOOK], ids=lambda made: made[0].__name__)
def test_a_time_limit_is_a_number_of_seconds(made: Any, seconds: Any) -> None:
    with pytest.raises(penstock.InvalidInput, match="timeout_seconds"):
        made[0](made[1], timeout_seconds=seconds)


@pytest.mark.shows("R06")
@pytest.mark.parametrize(
    ("make", "options", "says"),
    [
        (Kafka, ("",), "servers"),
        (Kafka, (["a:9"],), "servers"),
        (*KAFKA, {"topic": ""}),
        (*KAFKA, {"transactional_id": 5}),
        (*KAFKA, {"config": 5}),
        (*KAFKA, {"config": {"acks": None, "no.such": 1}}),
        (*NATS, {"subject": b"x"}),
        (*NATS, {"credentials": 5}),
        (*VALKEY, {"stream": ""}),
        (*VALKEY, {"max_length": 0}),
        (*VALKEY, {"max_length": "x"}),
        (Valkey, ("valkey://a?bogus=1",), "option"),
        (Valkey, ("valkey://me:12#s3cr3t@a",), "percent-encoded"),
        (Valkey, ("valkey://me:12/s3cr3t@a",), "percent-encoded"),
        (Nats, ("nats://me:12?s3cr3t@a",), "percent-encoded"),
        (*WEBHOOK, {"unavailable": 503}),
        (*WEBHOOK, {"unavailable": ["503"]}),
        (*WEBHOOK, {"unavailable": [200]}),
        (*WEBHOOK, {"source": ""}),
        (*WEBHOOK, {"headers": ["s3cr3t"]}),
        (*WEBHOOK, {"headers": {"a b": "s3cr3t"}}),
        (*WEBHOOK, {"headers": {"ce-id": "s3cr3t"}}),
        (*WEBHOOK, {"tls": "yes"}),
        (JsonLines, ("",), "path"),
        (JsonLines, (None,), "path"),
        (Callable, print, {"batch": "x"}),
        (Callable, print, {"batch": 0}),
    ],
    ids=repr,
)
def test_a_wrong_option_is_refused_by_its_name(make: Any, options: Any, says: Any) -> None:
    given, named = ((options,), says) if isinstance(says, dict) else (options, {})
    with pytest.raises(penstock.InvalidInput, match=says if isinstance(says, str) else next(iter(says))) as caught:
        make(*given, **named)
    assert "s3cr3t" not in str(caught.value)


def test_a_driver_that_is_not_installed_is_said_before_anything_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_options, "find_spec", lambda name: None)
    for make, url in (KAFKA, NATS, VALKEY, WEBHOOK):
        with pytest.raises(penstock.PenstockError, match="pip install") as caught:
            make(url)
        assert caught.value.code == "missing_dependency"


@pytest.mark.shows("R03")
def test_a_database_that_valkey_does_not_have_is_of_the_target() -> None:
    with ValkeyServer() as server:
        publisher = Valkey(f"valkey://127.0.0.1:{server.port}/9999", stream="x")
        assert kinds(publisher, trial_of(publisher).message()) == [("unavailable", "unreachable")]
        publisher.close()
