"""`penstock conformance`: every clause with its result, and an exit code that tells."""

from __future__ import annotations

import pytest

from penstock.testing.clauses import page_003
from penstock.testing.clauses.bench import Bench
from penstock.testing.clauses.registry import Clause, clauses
from tests.cli.conftest import Command


@pytest.mark.shows("K51")
@pytest.mark.empty_place
@pytest.mark.parametrize("page", ["003", "004"])
def test_the_clauses_of_a_page_are_listed_with_their_results(penstock: Command, page: str) -> None:
    found = penstock("conformance", "--page", page)
    assert found.code == 0, found.out
    expected = [one.id for one in clauses() if one.id.startswith(page)]
    assert [one["id"] for one in found.json["clauses"]] == expected
    assert (found.json["held"], found.json["failed"]) == (len(expected), 0)


@pytest.mark.shows("K51")
@pytest.mark.empty_place
def test_a_clause_that_does_not_hold_is_named_and_fails_the_command(
    penstock: Command, command: Command, log_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(b: Bench) -> None:
        raise AssertionError("the event was lost")

    planted = (
        Clause("003-1", "processing recovers", broken),
        Clause("003-6", "kept", page_003.kept_until_acknowledged),
    )
    monkeypatch.setattr("penstock.testing.clauses.registry.clauses", lambda: planted)
    monkeypatch.setattr("penstock.testing.clauses.run.clauses", lambda: planted)
    found = penstock("conformance")
    assert found.code == 1
    assert [(one["id"], one["holds"]) for one in found.json["clauses"]] == [("003-1", False), ("003-6", True)]
    shown = command("conformance", "--failed", "--url", log_url)
    assert shown.code == 1 and "the event was lost" in shown.out and "003-6" not in shown.out


@pytest.mark.empty_place
def test_an_unknown_page_is_refused(penstock: Command) -> None:
    found = penstock("conformance", "--page", "009")
    assert found.code == 2 and found.error == "usage"
