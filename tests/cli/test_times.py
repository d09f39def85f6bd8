"""Times and positions as people type them."""

from datetime import UTC, datetime, timedelta

import pytest

from penstock.cli.times import parse_position, parse_time
from penstock.errors import InvalidInput, NaiveDatetime

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("now", NOW),
        ("-1h", NOW - timedelta(hours=1)),
        ("+10s", NOW + timedelta(seconds=10)),
        ("-1h30m", NOW - timedelta(minutes=90)),
        ("+1.5d", NOW + timedelta(hours=36)),
        ("-250ms", NOW - timedelta(milliseconds=250)),
        ("2026-07-01T14:00:00+02:00", NOW),
        ("2026-07-01T12:00Z", NOW),
    ],
)
def test_times(text: str, wanted: datetime) -> None:
    assert parse_time(text, "since", now=NOW) == wanted


@pytest.mark.parametrize("text", ["", "1h", "-1", "-1y", "yesterday", "2026-13-01T00:00Z", "+999999999999w"])
def test_no_times(text: str) -> None:
    with pytest.raises(InvalidInput, match="since"):
        parse_time(text, "since", now=NOW)


def test_a_naive_time_is_refused_with_advice() -> None:
    with pytest.raises(NaiveDatetime, match="2026-07-01T12:00Z"):
        parse_time("2026-07-01T12:00", "since")


def test_positions() -> None:
    assert parse_position("beginning", "--to") == "beginning"
    assert parse_position("42", "--to") == 42
    assert isinstance(parse_position("-1h", "--to"), datetime)
    with pytest.raises(InvalidInput):
        parse_position("9" * 30, "--to")
