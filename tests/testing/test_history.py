"""The history checkers find every planted violation and none in a clean history."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from penstock.testing import History

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def clean() -> History:
    history = History(ordered=True)
    for n, key in enumerate(["a", "a", "b"]):
        history.append(n, n + 1, key)
    history.hold(1, "w1", at(0), at(5), {0: 1, 1: 1})
    history.hold(2, "w2", at(0), at(5), {2: 1})
    history.hold(3, "w2", at(5), at(6), {1: 2})
    history.succeed([0, 2, 1])
    for n in range(3):
        history.effect(n)
    history.end({0: "PUBLISHED", 1: "PUBLISHED", 2: "PUBLISHED"})
    return history


@pytest.mark.shows("X07")
def test_a_clean_history_has_no_violations() -> None:
    assert clean().check() == []


@pytest.mark.shows("X07")
@pytest.mark.parametrize(
    "kind", ["lost", "unexpected", "duplicated effect", "lost effect", "two holders", "order", "attempts", "liveness"]
)
def test_every_violation_is_found(kind: str) -> None:
    history = clean()
    match kind:
        case "lost":
            del history.final[1]
        case "unexpected":
            history.final[99] = "PUBLISHED"
            history.effect(99)
        case "duplicated effect":
            history.effect(1)
        case "lost effect":
            history.effects[1] = 0
        case "two holders":
            history.hold(4, "w3", at(5.5), at(7), {1: 3})
        case "order":
            history.successes[:] = [1, 2, 0]
        case "attempts":
            history.hold(4, "w3", at(7), at(8), {1: 2})
        case _:
            history.final[1] = "PENDING"
    assert {violation.kind for violation in history.check()} == {kind}
