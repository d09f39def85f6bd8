"""tools/check_clauses.py finds clauses without a check and checks without a clause."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.check_clauses import problems

ROOT = Path(__file__).parents[2]


def project(folder: Path, listed: str, check: str) -> Path:
    """Make a project with this list and one check."""
    (folder / "docs" / "reference").mkdir(parents=True)
    (folder / "docs" / "reference" / "clauses.md").write_text(listed)
    checks = folder / "src" / "penstock" / "testing" / "clauses"
    checks.mkdir(parents=True)
    (checks / "page_000.py").write_text(check)
    (folder / "tests").mkdir()
    return folder


@pytest.mark.shows("K51")
def test_a_clause_without_a_check_is_noticed(tmp_path: Path) -> None:
    complete = (ROOT / "docs" / "reference" / "clauses.md").read_text()
    row = next(line for line in complete.splitlines() if line.startswith("| 000-15 |"))
    planned = complete.replace(row, "| 000-15 | a relay publishes | planned: relay |")
    found = problems(project(tmp_path, planned, '@clause("000-1", "…")\n@clause("000-15", "…")\n'))
    assert "000-2 is called checked, but nothing carries it" in found
    assert "000-1 is called checked, but nothing carries it" not in found
    assert "000-15 has a check, but docs/reference/clauses.md does not say so" in found


@pytest.mark.shows("K51")
def test_a_clause_that_is_not_listed_is_noticed(tmp_path: Path) -> None:
    found = problems(project(tmp_path, "| 000-1 | a new event is PENDING | checked |\n", '@clause("000-1", "…")\n'))
    assert "docs/reference/clauses.md does not list 000-2" in found


@pytest.mark.shows("K51")
def test_a_planned_clause_of_a_finished_page_is_noticed(tmp_path: Path) -> None:
    complete = (ROOT / "docs" / "reference" / "clauses.md").read_text()
    row = next(line for line in complete.splitlines() if line.startswith("| 004-7 |"))
    planned = complete.replace(row, "| 004-7 | many jobs | planned: jobs |")
    found = problems(project(tmp_path, planned, '@clause("000-1", "…")\n'))
    assert "004-7 is called planned, but its page is finished" in found
    assert not any("003-18" in one for one in found), "another page may have planned ones"
