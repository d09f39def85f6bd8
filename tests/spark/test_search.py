"""The search for the poisonous events of a batch, with Spark jobs that only pretend; it needs no Spark."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.lease import Failure, LeaseId, LeaseRow, Token
from penstock.core.limits import PIPELINE_JOBS
from penstock.spark.causes import failure_of
from penstock.spark.failing_rows import Rows, rows_of
from penstock.spark.pipelines.bisect import Isolation, Result, Worked
from penstock.spark.pipelines.failures import failures_of
from penstock.spark.pipelines.sinks.base import Aside
from penstock.spark.pipelines.spark_jobs import Cause

NOW = datetime(2026, 1, 1, tzinfo=UTC)
Hint = Callable[[int, int], Rows | None]  # of a culprit's place in its piece, and the size of that


def lease(size: int) -> LeaseRow:
    whole = (1, 0, 1, 0, 0, size, (), None, size, 1, 0)
    return LeaseRow(LeaseId(1), Token(1), "orders", "g", *whole, "w", NOW, NOW)  # type: ignore[arg-type]


def search(size: int, culprits: set[int], hint: Hint) -> tuple[Worked, int]:
    """Run a lease of events 1, 2, …, some of which make their task fail; returns also the number of Spark jobs."""

    def spark_job(piece: LeaseRow, pieces: Sequence[LeaseRow], tolerated: int) -> Result:
        result = Result(once=True)
        for place, part in enumerate(pieces):
            assert part.low is not None and part.high is not None
            within = sorted(one for one in culprits if part.low < one <= part.high)
            if within:
                rows = hint(within[0] - part.low - 1, part.high - part.low)
                result.skipped[place] = Cause(Failure("error", f"bad {within[0]}"), rows)
            else:
                result.aside.append(Aside(f"{part.low} {part.high}", part.high - part.low, place))
        return result

    isolation = Isolation(lease(size), spark_job, lambda row: list(range(1, size + 1)), lambda: False)
    return isolation.run(2), isolation.spark_jobs


def check(size: int, culprits: set[int], worked: Worked) -> None:
    """Exactly the culprits fail, each with its own error, and every other event is staged once."""
    assert {offset: one.message for offset, one in worked.failed.items()} == {one: f"bad {one}" for one in culprits}
    staged: list[int] = []
    for one in worked.aside:
        low, high = map(int, one.name.split())
        staged += range(low + 1, high + 1)
    assert sorted(staged) == [one for one in range(1, size + 1) if one not in culprits] and not worked.released


@pytest.mark.shows("S04")
def test_a_hint_saves_most_of_the_search() -> None:
    culprits = {1_111, 99_999, 150_000}
    blind, blind_jobs = search(200_000, culprits, lambda place, size: None)
    worked, jobs = search(200_000, culprits, lambda place, size: (place, place + 1))
    check(200_000, culprits, blind)
    check(200_000, culprits, worked)
    assert jobs == 3 and blind_jobs == 8


@pytest.mark.shows("S04")
@given(st.integers(1, 3_000), st.data(), st.randoms(use_true_random=False))
def test_hints_may_be_wrong(size: int, data: st.DataObject, dice: random.Random) -> None:
    culprits = data.draw(st.sets(st.integers(1, size), max_size=6))

    def wrong(place: int, size: int) -> Rows | None:
        first = dice.randrange(size + 3)
        return dice.choice([None, (0, size), (first, first + 1), (first, first + 10_000), (place, place + 1)])

    worked, jobs = search(size, culprits, wrong)
    check(size, culprits, worked)
    assert jobs < PIPELINE_JOBS


def test_many_culprits_are_not_found_one_by_one() -> None:
    culprits = {*range(5, 2_000, 20)}
    worked, jobs = search(2_000, culprits, lambda place, size: (place, place + 1))
    check(2_000, culprits, worked)
    assert jobs < len(culprits)


def test_the_note_of_a_failing_row_is_not_part_of_the_error() -> None:
    text = (
        'Traceback (most recent call last):\n  File "app.py", line 3, in checked\n'
        "ValueError: a bad row\npenstock: rows 17 to 18\n\n\tat org.apache.spark.Task.run(Task.scala:1)"
    )
    assert rows_of(text) == (17, 18) and rows_of("ValueError: a bad row") is None
    assert failure_of(text).message == "ValueError: a bad row"


def test_an_empty_error_is_not_shown_as_its_type() -> None:
    found = failures_of({3: "", 4: "odd"}, lease(10))
    assert {offset: one.message for offset, one in found.items()} == {
        3: "the function gave an empty `_error`",
        4: "odd",
    }
