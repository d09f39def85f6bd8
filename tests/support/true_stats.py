"""Stats against a count of every delivery."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

import penstock


def check_stats(log: penstock.Log, now: datetime) -> None:
    """Counts and ages of every group and stream equal those found one by one."""
    stats = log.stats()
    assert log.survey().stats == stats, "what pages count up to a limit, where there is less"
    for one in stats.groups:
        states, oldest = _count(log, one.stream, one.group, now)
        counted = {"PENDING": one.pending, "CLAIMED": one.claimed, "PUBLISHED": one.published, "DEAD": one.dead}
        assert counted == {state: states[state] for state in counted}, (one.stream, one.group)
        assert one.oldest_seconds == oldest, (one.stream, one.group)
        assert log.stats(one.stream, one.group).groups == (one,)
    for stream in stats.streams:
        assert stream.events == len(log.read(stream.stream, limit=1_000_000))
        assert log.stats(stream.stream).streams == (stream,)


def _count(log: penstock.Log, stream: str, group: str, now: datetime) -> tuple[Counter[str], float | None]:
    """Deliveries per state, and the age of the oldest unfinished one."""
    found = log.deliveries(stream, group, limit=1_000_000)
    waiting = [one.created_at for one in found if str(one.state) in ("PENDING", "CLAIMED")]
    return Counter(str(one.state) for one in found), (now - min(waiting)).total_seconds() if waiting else None
