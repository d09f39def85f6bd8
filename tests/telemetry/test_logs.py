"""Log lines as JSON: the same fields in every line, and no secret in any of them."""

from __future__ import annotations

import json
import logging
import threading
import time

import pytest

import penstock
from penstock.cli.app import run as run_command
from penstock.core.lease import Failure
from penstock.core.log_fields import FIELDS, about, belongs_to
from penstock.core.observe import EventsFailed, Observers
from penstock.core.urls import without_secrets
from penstock.engine.failure_log import FailureLog
from penstock.engine.outage import Outage, patiently
from penstock.telemetry.logs import JsonFormatter


class Kept(logging.Handler):
    """Keeps lines as they would be written."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.setFormatter(JsonFormatter())
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def kept() -> Kept:
    return Kept()


def said(kept: Kept, do: object) -> list[dict[str, object]]:
    logger = logging.getLogger("penstock")
    logger.addHandler(kept)
    try:
        do()  # type: ignore[operator]
    finally:
        logger.removeHandler(kept)
    return [json.loads(line) for line in kept.lines]


def test_a_line_has_its_fields(kept: Kept) -> None:
    def do() -> None:
        belongs_to(7)
        logging.getLogger("penstock").warning("gone", extra=about("lease_lost", "orders/fraud", lease=3, code="lost"))
        logging.getLogger("penstock").warning("plain")
        belongs_to(None)

    first, second = said(kept, do)
    assert {name: first[name] for name in FIELDS} == {
        "event": "lease_lost",
        "run": 7,
        "stream": "orders",
        "group": "fraud",
        "lease": 3,
        "code": "lost",
    }
    assert {*second} == {"at", "level", "message", *FIELDS} and second["event"] == "log"


def test_a_line_holds_whatever_is_said(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("penstock"), "propagate", False)  # no report of a test can hold half a pair

    def do() -> None:
        logging.getLogger("penstock").warning("half a pair: \ud800")
        logging.getLogger("penstock").warning("many", extra=about("log", "orders/fraud", lease=2**80))

    first, second = said(kept, do)
    assert first["message"] == "half a pair: \ud800" and second["lease"] == 2**80


@pytest.mark.parametrize("part", ["a.", "a-", "a://", "a://b:", "token", "token='", "bearer ", "password = "])
def test_masking_costs_as_much_as_the_line_is_long(part: str) -> None:
    """Sixteen times the line: not the square of it."""

    def cost(times: int) -> float:
        began = time.process_time()
        without_secrets(part * times)
        return time.process_time() - began

    assert min(cost(16_000) / cost(1_000) for _ in range(5)) < 80


def test_what_engines_say_has_stream_group_and_code(kept: Kept, log: penstock.Log) -> None:
    log.append("orders", {"card": "4711"}, type="t")
    log.create_group("orders", "fraud")
    lease = log.claim("orders", "fraud", claimed_by="w")
    assert lease is not None
    tries = iter([penstock.StoreUnavailable("no route"), None, penstock.LeaseLost("Lease 5 is gone.")])

    def once() -> None:
        if (error := next(tries)) is not None:
            raise error

    def do() -> None:
        FailureLog()(EventsFailed("orders/fraud", lease.events, {0: Failure("ValueError", "no")}, lease.id))
        for _ in range(2):
            patiently(once, "orders/fraud", Observers(), threading.Event(), Outage())

    found = said(kept, do)
    assert [(one["event"], one["code"]) for one in found] == [
        ("event_failed", "ValueError"),
        ("away", "store_unavailable"),
        ("back", None),
        ("lease_lost", "lease_lost"),
    ]
    assert all((one["stream"], one["group"]) == ("orders", "fraud") for one in found)
    assert found[0]["lease"] == lease.id and found[0]["offset"] == 1 and "4711" not in kept.lines[0]


@pytest.mark.shows("X09")
@pytest.mark.parametrize(
    "text",
    [
        "no route to postgresql://me:hunter2@db/shop",
        "postgresql://me:hun:ter2hunter2@db:5432/shop?sslmode=require is away",
        'connection failed: host=db password=hunter2 user="me"',
        "connection failed: password='hunter2 with spaces'",
        "401 for Authorization: Bearer hunter2hunter2",
        "token pst_hunter2 is unknown",
        "{'secret': 'hunter2', 'n': 1}",
        "valkey://:hunter2@cache/0",
    ],
)
def test_no_secret_is_in_a_line(kept: Kept, text: str) -> None:
    (line,) = said(kept, lambda: logging.getLogger("penstock").warning("orders/fraud: %s", text))
    assert "hunter2" not in str(line) and "***" in str(line)
    assert without_secrets("orders/fraud: lease 7 of w-1 at 12:00:01 http://db:5432/x") == (
        "orders/fraud: lease 7 of w-1 at 12:00:01 http://db:5432/x"
    )

    def fail() -> None:
        try:
            raise ValueError(text)
        except ValueError:
            logging.getLogger("penstock").exception("oh")

    kept.lines.clear()
    (line,) = said(kept, fail)
    assert "hunter2" not in str(line) and "ValueError" in str(line["traceback"]) and line["code"] == "ValueError"


@pytest.mark.shows("X09")
def test_every_line_of_a_service_without_its_database_has_fields_and_no_password(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_TOKEN", "hunter2")
    monkeypatch.setattr("penstock.http.serving.PATIENCE_SECONDS", 0.1)
    url = "postgresql://me:hunter2@127.0.0.1:1/shop?connect_timeout=1"
    assert run_command(["serve", "--port", "0", "--url", url, "--log-format", "json"]) == 1
    said = capsys.readouterr()
    lines = [json.loads(line) for line in said.err.splitlines()]
    assert lines and all({"at", "level", "message", *FIELDS} <= {*line} for line in lines)
    assert lines[-1]["code"] == "store_unavailable" and "hunter2" not in said.err + said.out
