"""The pure rules, one by one, with random input."""

from __future__ import annotations

import re
import sqlite3
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.core import codec, lifecycle
from penstock.core.binding import check_pattern, globs_of, matches, regex_of
from penstock.core.delivery import State
from penstock.core.lanes import bucket_of, check_lanes, children, lane_of, slice_of
from penstock.core.lease import cut, split_released
from penstock.core.ordering import held_back

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.shows("K05")
def test_six_transitions_are_legal_and_no_other() -> None:
    legal = set()
    for before in State:
        for after in State:
            try:
                lifecycle.require(before, after)
            except penstock.IllegalTransition:
                continue
            legal.add((before, after))
    assert legal == lifecycle.TRANSITIONS and len(legal) == 6


@pytest.mark.shows("K12", "K13")
def test_retry_or_dead_depends_on_failures_age_and_the_handlers_wish() -> None:
    def decide(failures: int, **more: Any) -> datetime | None:
        policy = penstock.Retry(max_attempts=3, base_seconds=2, factor=3, jitter=0, max_age_seconds=60)
        return lifecycle.next_attempt(policy, failures, now=NOW, u=0.0, **{"created_at": NOW, **more})

    assert decide(1) == NOW + timedelta(seconds=2) and decide(2) == NOW + timedelta(seconds=6)
    assert decide(3) is None, "the third failure is the last"
    assert decide(1, created_at=NOW - timedelta(seconds=60)) is None, "too old"
    assert decide(1, created_at=None) == NOW + timedelta(seconds=2), "without a maximum age"
    assert decide(2, retry_after_seconds=0.5) == NOW + timedelta(seconds=0.5), "the handler's own delay"
    assert decide(3, retry_after_seconds=0.5) is None, "a delay does not extend the budget"


@pytest.mark.shows("K12")
@given(
    n=st.integers(1, 5000),
    base=st.floats(0, 1e6),
    factor=st.floats(0, 1e6),
    cap=st.floats(0, 1e6),
    jitter=st.floats(0, 1),
    u=st.floats(0, 1, exclude_max=True),
)
def test_a_delay_stays_within_its_bounds(
    n: int, base: float, factor: float, cap: float, jitter: float, u: float
) -> None:
    retry = penstock.Retry(base_seconds=base, factor=factor, cap_seconds=cap, jitter=jitter)
    full, delay = retry.delay_seconds(n, u=0.0), retry.delay_seconds(n, u=u)
    assert 0 <= delay <= full <= cap and delay >= full * (1 - jitter) - 1e-9


@pytest.mark.shows("K12")
def test_backoff_follows_the_formula_and_bad_policies_are_refused() -> None:
    retry = penstock.Retry(base_seconds=2, factor=2, cap_seconds=3600, jitter=0.1)
    assert [retry.delay_seconds(n, u=0) for n in (1, 2, 3, 11, 12, 99)] == [2, 4, 8, 2048, 3600, 3600]
    assert retry.delay_seconds(3, u=0.5) == pytest.approx(8 * 0.95)
    for bad in (
        {"max_attempts": 0},
        {"jitter": 2},
        {"base_seconds": -1},
        {"factor": float("nan")},
        {"max_attempts": 1.5},
    ):
        with pytest.raises(penstock.InvalidInput):
            penstock.Retry(**bad)  # type: ignore[arg-type]


@given(key=st.text(min_size=1), lanes=st.sampled_from([1, 2, 4, 8, 16, 256]))
def test_a_key_has_one_lane_and_keeps_to_its_half(key: str, lanes: int) -> None:
    try:
        bucket = bucket_of(key)
    except UnicodeEncodeError:
        return
    lane = lane_of(bucket, lanes)
    first, last = slice_of(lane, lanes)
    assert first <= bucket <= last
    if lanes < 256:
        assert lane_of(bucket, 2 * lanes) in children(lane)


def test_lanes_are_powers_of_two() -> None:
    for bad in (0, 3, 512, -8, "8"):
        with pytest.raises(penstock.InvalidInput):
            check_lanes(bad)  # type: ignore[arg-type]


@pytest.mark.shows("K16")
@given(st.lists(st.integers(1, 10_000), unique=True, min_size=1), st.integers(1, 20), st.integers(0, 50))
def test_a_cut_covers_the_range_in_equal_pieces(offsets: list[int], pieces: int, slack: int) -> None:
    members = sorted(offsets)
    low, high = members[0] - 1, members[-1] + slack
    parts = cut(members, low, high, pieces)
    assert parts[0][0] == low and parts[-1][1] == high
    assert all(one[1] == two[0] for one, two in pairwise(parts))
    sizes = [sum(start < member <= end for member in members) for start, end, _ in parts]
    assert sizes == [count for *_, count in parts] and max(sizes) - min(sizes) <= 1 and len(parts) <= pieces


def test_an_event_that_kills_its_worker_is_alone_after_four_splits() -> None:
    size, steps = 10_000, []
    while size > 1:
        size = max(count for *_, count in cut(range(1, size + 1), 0, size))
        steps.append(size)
    assert steps == [625, 40, 3, 1]


@given(st.lists(st.booleans(), min_size=1, max_size=30))
def test_what_is_released_at_the_end_is_a_range_and_the_rest_are_rows(flags: list[bool]) -> None:
    members = [2 * n + 1 for n in range(len(flags))]
    released = {member for member, back in zip(members, flags, strict=True) if back}
    upto, singles = split_released(members, released, 0, 99)
    tail = {member for member in members if member > upto}
    assert tail | singles == released and not tail & singles and all(single <= upto for single in singles)


@pytest.mark.shows("K18")
@given(st.lists(st.tuples(st.sampled_from([None, "a", "b"]), st.booleans()), max_size=20))
def test_no_event_of_a_key_overtakes_one_that_stopped(events: list[tuple[str | None, bool]]) -> None:
    members = [(offset, key) for offset, (key, _) in enumerate(events)]
    stopped = {offset for offset, (_, stop) in enumerate(events) if stop}
    back = set(held_back(members, stopped))
    for offset, key in members:
        earlier = any(key is not None and k == key and o in stopped for o, k in members[:offset])
        assert (offset in back) == earlier


# --- patterns: Python, PostgreSQL's regular expression and SQLite's globs must agree ----------------------------------

segment = st.sampled_from(["a", "b", "ab", "order", "x-1", "a:b"])
pattern = st.builds(
    lambda parts, rest: ".".join([*parts, *rest]),
    st.lists(st.one_of(segment, st.just("*")), min_size=1, max_size=4),
    st.sampled_from([[], [">"]]),
)
name = st.one_of(
    st.lists(segment, min_size=1, max_size=6).map(".".join), st.from_regex(r"[a-b][a-b.]{0,8}", fullmatch=True)
)


def by_segments(text: str, event_type: str) -> bool:
    """The meaning of a pattern, written out."""
    wanted, have = text.split("."), event_type.split(".")
    if wanted[-1] == ">":
        rest = ".".join(have[len(wanted) - 1 :])
        return len(have) >= len(wanted) and rest != "" and by_segments_plain(wanted[:-1], have[: len(wanted) - 1])
    return len(wanted) == len(have) and by_segments_plain(wanted, have)


def by_segments_plain(wanted: list[str], have: list[str]) -> bool:
    return all(w == h or (w == "*" and h != "") for w, h in zip(wanted, have, strict=True))


@pytest.mark.shows("K21")
@given(pattern, name)
def test_patterns_mean_the_same_everywhere(text: str, event_type: str) -> None:
    check_pattern(text)
    expected = by_segments(text, event_type)
    assert matches([text], None, event_type, None) == expected
    assert bool(re.match(regex_of([text]) or "", event_type)) == expected
    dots = event_type.count(".")
    database = sqlite3.connect(":memory:")
    try:
        found = any(
            database.execute("select ? glob ?", (event_type, glob.glob)).fetchone()[0]
            and glob.min_dots <= dots <= glob.max_dots
            for glob in globs_of([text])
        )
    finally:
        database.close()
    assert found == expected


def test_digests_depend_on_what_is_said_and_not_on_its_order() -> None:
    one = {"a": 1, "b": {"x": b"\0", "y": {3, 1, 2}}, "t": NOW}
    two = {"t": NOW + timedelta(0), "b": {"y": {2, 3, 1}, "x": b"\0"}, "a": 1}
    assert codec.digest(one) == codec.digest(two) != codec.digest({**one, "a": 2})


def test_errors_become_text_that_any_database_stores() -> None:
    assert codec.error_text(ValueError("a\0b\ud800")) == "a\\0b\\ud800"
    assert codec.error_text(ValueError()) == "ValueError" and codec.error_code(ValueError()) == "ValueError"
    assert len(codec.error_text("x" * 100_000).encode()) <= 8192
