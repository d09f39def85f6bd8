"""A typo in a stream or a group: the error's hint says what was meant, and nothing is asked when nothing is wrong."""

from __future__ import annotations

import pytest

import penstock as library
from penstock.cli import near
from tests.cli.conftest import Command


@pytest.fixture
def filled(log_url: str) -> None:
    with library.open(log_url) as log:
        log.append("orders", {}, type="t")
        log.append("payments", {}, type="t")
        log.create_group("orders", "fraud")
        log.create_group("payments", "ledger")


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("dead", "ordrs", "fraud"), "Did you mean the stream 'orders'?"),
        (("dead", "orders", "frauds"), "Did you mean the group 'fraud'?"),
        (("redrive", "orders", "farud", "--all", "--yes"), "Did you mean the group 'fraud'?"),
        (("group", "pause", "orders", "frud"), "Did you mean the group 'fraud'?"),
        (("events", "orders", "--group", "fruad"), "Did you mean the group 'fraud'?"),
        (("show", "order", "1"), "Did you mean the stream 'orders'?"),
        (("readers", "orders", "ledger"), "'ledger' is a group of 'payments'."),
    ],
)
def test_the_hint_says_what_was_meant(penstock: Command, filled: None, arguments: tuple[str, ...], meant: str) -> None:
    refused = penstock(*arguments)
    assert refused.code == 1 and refused.error in ("unknown_group", "unknown_event")
    assert refused.json["error"]["hint"].startswith(meant)


def test_nothing_like_it(penstock: Command, filled: None) -> None:
    assert "Did you mean" not in penstock("dead", "zzz", "qqq").json["error"]["hint"]


def test_an_empty_list_asks_about_its_stream(command: Command, log_url: str, filled: None) -> None:
    for arguments in (("events", "ordrs"), ("groups", "ordrs")):
        assert "Did you mean the stream 'orders'?" in command(*arguments, "--url", log_url).out
        assert "Did you mean" not in command(*arguments, "--url", log_url, "--json").out


def test_nothing_is_asked_when_nothing_is_wrong(
    penstock: Command, filled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(near, "get_close_matches", lambda *given, **more: pytest.fail("asked"))
    monkeypatch.setattr(near, "stream_like", lambda *given: pytest.fail("asked"))
    assert penstock("dead", "orders", "fraud").code == 0
    assert penstock("show", "orders", "1").code == 0
