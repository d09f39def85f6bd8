"""Tables in 60, 80 and 110 columns: no number is cut, and text that is cut says so."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

import penstock as library
from penstock.cli import groups, output, readers, records, runs
from penstock.core.delivery import State
from penstock.log.deliveries import DeliveryRecord
from penstock.log.readers import Reader
from penstock.log.runs import RunInfo
from penstock.log.stats import GroupStats, Stats, StreamStats
from tests.cli.conftest import Command

WIDTHS = (60, 80, 110)
LONG = "a-stream-with-a-rather-long-name.in-a-namespace:of-its-own"
LARGE = 9_876_543_210
NOW = datetime.now(UTC)


@pytest.fixture(params=WIDTHS)
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("COLUMNS", str(request.param))
    return int(request.param)


def printed(shown: Any, width: int) -> str:
    console = Console(file=StringIO(), width=width, markup=False, highlight=False, emoji=False)
    console.print(shown)
    said: str = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(len(line) for line in said.splitlines()) <= width, said
    return said


def words(shown: str) -> list[str]:
    return [one for one in re.split(r"\s{2,}|\n|^\s+", shown) if one]


def check_words(shown: str, *whole: str) -> None:
    """Every word in the table is one of these, or the beginning of one with a mark."""
    for word in words(shown):
        if word.startswith("─"):
            continue
        begin = word.removesuffix("…")
        assert any(one == word or (begin != word and one.startswith(begin)) for one in whole), (word, shown)


def test_a_number_is_never_cut(width: int) -> None:
    shown = printed(output.table(("stream…", ">events", ">groups"), [(LONG, f"{LARGE:,}", "594")]), width)
    assert f"{LARGE:,}" in shown and "594" in shown
    check_words(shown, "stream", "events", "groups", LONG, f"{LARGE:,}", "594")


def test_text_that_is_cut_has_a_mark() -> None:
    (row,) = printed(output.table(("name…", ">n"), [(LONG, "594")], width=20), 20).splitlines()[2:]
    assert row == "a-stream-with-…  594"


def test_what_does_not_fit_beside_each_other_is_shown_below_each_other() -> None:
    columns = (">one", ">two", ">three", "name…")
    shown = printed(output.table(columns, [("1" * 12, "2" * 12, "3" * 12, LONG)] * 2, width=40), 40)
    for number in ("1" * 12, "2" * 12, "3" * 12):
        assert shown.count(number) == 2
    assert re.search(r"^three +3{12} *$", shown, re.MULTILINE)


def test_columns_that_may_be_left_out_go_first() -> None:
    rows = [("123456", "x" * 30, "y" * 36)]
    columns = (">offset", "type…", "event id?")
    assert "y" * 36 in printed(output.table(columns, rows, width=80), 80)
    narrow = printed(output.table(columns, rows, width=50), 50)
    assert "event id" not in narrow and "x" * 30 in narrow


def test_stats(width: int) -> None:
    one = GroupStats(
        **{
            **dict.fromkeys(GroupStats.__dataclass_fields__, 0),
            "stream": LONG,
            "group": f"group-{LONG}",
            "pending": LARGE,
            "claimed": 594,
            "published": LARGE,
            "dead": 59_412,
            "lag": LARGE,
            "lag_is_exact": False,
            "oldest_seconds": 594.0,
            "published_per_second": 123_456.7,
            "paused": True,
        }
    )
    small = replace(one, pending=594, published=123, lag=0, dead=0)
    for rows in ((one,), (small,), (one, small)):
        found = Stats(**_stats(rows))
        shown = printed(records.stats_tables(found), width)
        for row in rows:
            for number in (row.pending, row.claimed, row.published, row.dead):
                assert re.search(rf"(?<![\d,]){number:,}(?![\d,])", shown), shown
        assert "paused" in shown


def _stats(rows: tuple[GroupStats, ...]) -> dict[str, Any]:
    given: dict[str, Any] = dict.fromkeys(Stats.__dataclass_fields__, 0)
    streams = (StreamStats(**{**dict.fromkeys(StreamStats.__dataclass_fields__, 0), "stream": LONG, "events": LARGE}),)
    return {**given, "streams": streams, "groups": rows, "horizon": LARGE}


def test_deliveries_and_events(width: int, command: Command, tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path / 'log.db'}"
    with library.open(url) as log:
        for _ in range(2):
            log.append(LONG, {"n": "long " * 100}, type=f"type-{LONG}", ordering_key=f"key-{LONG}")
        log.create_group(LONG, f"group-{LONG}", retry=library.Retry(max_attempts=1))
        lease = log.claim(LONG, f"group-{LONG}", claimed_by=f"worker-{LONG}")
        assert lease is not None
        first = lease.events[0].event_id
        lease.settle(dead={str(first): "an error with many words " * 20})
        record = log.delivery(LONG, f"group-{LONG}", first)
        many = [replaced(record, offset=offset) for offset in (1, LARGE)]
        whole = printed(records.delivery_table(many), width)
        assert str(LARGE) in whole and "DEAD" in whole
    for arguments in (
        ("streams",),
        ("groups",),
        ("stats",),
        ("events", LONG),
        ("events", LONG, "--group", f"group-{LONG}"),
        ("dead", LONG, f"group-{LONG}"),
        ("show", LONG, "1"),
    ):
        shown = command(*arguments, "--url", url)
        assert shown.code == 0
        lines = shown.out.splitlines()
        assert max(map(len, lines)) <= width, shown.out
        if arguments[0] == "show":
            continue  # its facts are wrapped, not cut
        names = [f"{kind}{LONG}" for kind in ("", "type-", "key-", "group-", "worker-")]
        for name in re.findall(r"(?:type-|key-|group-|worker-|\b)a-stream[\w:.-]*…?", shown.out):
            assert name.endswith("…") or name in names, shown.out
    assert str(first) in command("events", LONG, "--group", f"group-{LONG}", "--json", "--url", url).out


def replaced(record: DeliveryRecord, **fields: Any) -> DeliveryRecord:
    """A stand-in with the fields of a record."""

    class Other:
        state = State.DEAD

        def __getattr__(self, name: str) -> Any:
            return fields[name] if name in fields else getattr(record, name)

    return Other()  # type: ignore[return-value]


def test_runs_and_readers(width: int) -> None:
    given = {
        "id": 594,
        "name": f"host-{LONG}/12345",
        "app": f"app-{LONG}",
        "engine": "spark",
        "version": "1",
        "host": "h",
        "pid": 1,
        "groups": (f"{LONG}/one", f"{LONG}/two"),
        "started_at": NOW - timedelta(seconds=594),
        "heartbeat_at": NOW,
        "wanted": "stop",
        "ended_at": None,
        "outcome": f"failed: {LONG}",
        "state": "running",
    }
    run = RunInfo(**{name: given[name] for name in RunInfo.__dataclass_fields__ if name in given})
    shown = printed(runs._table([run]), width)
    assert "594" in shown and "running" in shown and "spark" in shown
    reader = Reader("5d41402abc4b2a76", LARGE, NOW - timedelta(seconds=594), NOW + timedelta(seconds=60))
    shown = printed(readers._table([reader]), width)
    assert "5d41402abc4b2a76" in shown and f"{LARGE:,}" in shown


def test_groups(width: int, tmp_path: Any) -> None:
    with library.open(f"sqlite:///{tmp_path / 'log.db'}") as log:
        log.create_group(
            LONG, f"group-{LONG}", types=[f"type-{LONG}"], ordering="key", lanes=256, retry=library.Retry(594_123)
        )
        log.pause(LONG, f"group-{LONG}", reason="because of many things that went wrong " * 3)
        shown = printed(groups._table(log.groups()), width)
    assert "594123" in shown and "paused" in shown and ("256" in shown or width < 110)
