"""`penstock serve` and `penstock token` in processes of their own."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import httpx
import pytest

import penstock as library
from penstock.connect.http import Client
from penstock.http.upkeep import Upkeep
from penstock.testing import VirtualClock
from tests.cli.conftest import Command, command, penstock  # noqa: F401  # fixtures
from tests.support.running import Running
from tests.support.running import penstock as run
from tests.support.waiting import wait_until


def url_of(running: Running) -> str:
    running.wait_until(lambda: running.out.endswith("\n"), "the service says where it is")
    return str(json.loads(running.out)["url"])


@pytest.mark.shows("X09")
def test_serve_answers_until_it_is_told_to_stop(log_url: str, tmp_path: Path) -> None:
    with library.open(log_url) as log:
        secret = log.create_token("t", ["admin"]).secret
    with run(tmp_path, "serve", "--port", 0, "--url", log_url, "--json") as running:
        with Client(url_of(running), token=secret) as client:
            client.append("orders", {"n": 1}, type="t")
            assert [one.json() for one in client.read("orders")] == [{"n": 1}]
        running.process.send_signal(signal.SIGTERM)
        assert running.wait() == 0 and secret not in running.err


@pytest.mark.shows("X09")
def test_the_environment_brings_a_token(log_url: str, tmp_path: Path) -> None:
    environment = {"PENSTOCK_TOKEN": "from-outside"}
    with run(tmp_path, "serve", "--port", 0, "--url", log_url, "--json", environment=environment) as running:
        url = url_of(running)
        good = httpx.get(f"{url}/v1/streams", headers={"Authorization": "Bearer from-outside"})
        assert good.status_code == 200 and httpx.get(f"{url}/v1/streams").status_code == 401


@pytest.mark.shows("X09")
def test_serve_does_not_start_without_a_token(
    penstock: Command,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PENSTOCK_TOKEN", raising=False)
    assert penstock("serve").error == "token_needed"
    assert penstock("serve", "--no-auth", "--host", "0.0.0.0").error == "token_needed"
    penstock("token", "create", "t", "--scope", "read")
    penstock("token", "revoke", "t")
    assert penstock("serve").error == "token_needed"


@pytest.mark.shows("X09")
def test_tokens_are_created_listed_and_revoked(penstock: Command, log_url: str) -> None:  # noqa: F811
    made = penstock("token", "create", "billing", "--scope", "read", "--scope", "work:orders", "--by", "ada").json
    assert made["scopes"] == ["read", "work:orders"] and made["token"].startswith("pst_")
    assert penstock("token", "create", "billing", "--scope", "read").error == "token_exists"
    assert penstock("token", "create", "x", "--scope", "all").code == 2
    shown = penstock("token", "list")
    assert made["token"] not in shown.out
    (one,) = shown.json["tokens"]
    assert (one["name"], one["created_by"], one["revoked_at"]) == ("billing", "ada", None)
    assert penstock("token", "revoke", "billing").json["revoked_at"] is not None
    assert penstock("token", "revoke", "nobody").error == "unknown_token"


@pytest.mark.shows("J12")
def test_a_service_submits_what_is_scheduled_and_reaps(clocked: library.Log, clock: VirtualClock) -> None:
    clocked.schedule("often", "* * * * *", type="report")
    clocked.create_group("orders", "fraud")
    clocked.append("orders", {}, type="t")
    assert clocked.claim("orders", "fraud", claimed_by="w") is not None
    clock.advance(61)
    with Upkeep(clocked, tick_seconds=0.01, reap_seconds=0):
        wait_until(lambda: len(clocked.jobs(type="report")) == 1, "the job to be submitted")
        wait_until(lambda: clocked.stats("orders").groups[0].open_leases == 0, "the lease to be reaped")
