"""An open circuit is shown wherever one looks for why a group does nothing."""

import pytest

import penstock as library
from tests.cli.conftest import Command


@pytest.mark.shows("K47")
def test_an_open_circuit_is_shown(command: Command, penstock: Command, log_url: str) -> None:
    with library.open(log_url) as log:
        log.append("orders", {}, type="t")
        log.create_group("orders", "fraud")
        assert penstock("groups").json["groups"][0]["circuit"] is None
        lease = log.claim("orders", "fraud", claimed_by="w")
        assert lease is not None
        lease.settle(released=[lease.events[0]], unavailable="the bank is closed")
    circuit = penstock("groups").json["groups"][0]["circuit"]
    assert circuit["last_error"] == "the bank is closed" and circuit["delay_seconds"] == 1.0
    assert circuit["opened_at"] < circuit["probe_at"]
    assert "circuit open" in command("groups", "--url", log_url).out
    assert penstock("stats").json["groups"][0]["unavailable"] == "the bank is closed"
    assert "unavailable" in command("stats", "--url", log_url).out
    assert "the bank is closed" in penstock("doctor").out
