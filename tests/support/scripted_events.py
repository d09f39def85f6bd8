"""Events that say what goes wrong in each attempt, and random groups of them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import penstock
from tests.support.children import handlers
from tests.support.declarations import SIX_ATTEMPTS, subscription
from tests.support.done_table import done_offsets
from tests.support.local_engine import run_local_until_drained
from tests.support.notes import read_notes

ACTS = ["exit", "raise", "permanent", "kill", "hang"]


def append_scripts(log: penstock.Log, scripts: list[dict[str, str]], key: Callable[[int], str | None]) -> None:
    """Append an event per script: attempt number → what the handler does."""
    log.append_many(
        "orders",
        [{"payload": {"script": one}, "type": "t", "ordering_key": key(n)} for n, one in enumerate(scripts)],
    )


def emitted_offsets(log: penstock.Log) -> list[int]:
    """The offsets of the events that handlers emitted for."""
    return [event.json()["offset"] for event in log.read("seen", limit=10_000)]


def assert_each_call_has_its_own_attempt(path: Path) -> None:
    """No two notes name the same offset and attempt."""
    calls = Counter((int(offset), int(attempt)) for offset, attempt in read_notes(path))
    assert [call for call, count in calls.items() if count > 1] == []


def check_random_deaths(log: penstock.Log, url: str, notes: Path, seed: int, events: int) -> None:
    """Run a random group over random scripts, then count every call and effect."""
    rng = random.Random(seed)
    ordered, concurrency = rng.random() < 0.6, rng.choice([1, 1, 4])
    handler = rng.choice([handlers.scripted, handlers.scripted_state, handlers.scripted_plain])
    keys = rng.choice([1, 2, 5])
    scripts = [
        {str(attempt): rng.choice(ACTS) for attempt in range(1, 4) if rng.random() < 0.08} for _ in range(events)
    ]
    append_scripts(log, scripts, lambda n: f"k{n % keys}")
    policy: dict[str, Any] = {"ordering": "key" if ordered else None, "concurrency": concurrency, "retry": SIX_ATTEMPTS}
    if ordered or handler is not handlers.scripted_plain:
        policy["lanes"] = rng.choice([1, 2])
    run_local_until_drained(
        log, subscription(handler, timeout_seconds=0.7, batch_size=rng.choice([3, 10, 1_000]), **policy)
    )
    shown = log.deliveries("orders", "g", limit=1_000)
    published = sorted(one.offset for one in shown if one.state == "PUBLISHED")
    assert len(shown) == events and {str(one.state) for one in shown} <= {"PUBLISHED", "DEAD"}, seed
    assert_each_call_has_its_own_attempt(notes)
    if handler is handlers.scripted_plain:
        return
    effects = [("emitted", emitted_offsets(log))] + (
        [("sql", done_offsets(url))] if handler is handlers.scripted else []
    )
    for what, found in effects:
        assert sorted(found) == published, (seed, what)
    for key in range(keys):
        own = [offset for offset in published if (offset - 1) % keys == key]
        seen = log.state("orders", "g", f"k{key}").get("seen", [])
        assert sorted(seen) == own, seed
        if ordered:
            assert seen == own, seed
            assert all([n for n in found if (n - 1) % keys == key] == own for _, found in effects), seed
