"""Fails when docs/reference/clauses.md calls a clause checked and no check carries it, or the other way round,
and when a clause of a finished page is only planned.

Checks name their clause with `@clause("000-1", …)`; a test may carry one with `@pytest.mark.clause("000-1")`.
"""

import re
import sys
from pathlib import Path

ROW = re.compile(r"^\| (\d{3}-\d+) \| .+ \| (checked|planned: .+) \|$", re.MULTILINE)
CARRIED = re.compile(r'^@(?:pytest\.mark\.)?clause\("(\d{3}-\d+)"', re.MULTILINE)
LENGTHS = {"000": 56, "001": 25, "002": 64, "003": 25, "004": 32}  # clauses of each page
FINISHED = ("004",)  # pages of which nothing is planned any more


def problems(root: Path) -> list[str]:
    """What is wrong in the project at `root`, one line each."""
    rows = dict(ROW.findall((root / "docs" / "reference" / "clauses.md").read_text()))
    every = {f"{page}-{number}" for page, count in LENGTHS.items() for number in range(1, count + 1)}
    found = [f"docs/reference/clauses.md does not list {one}" for one in sorted(every - rows.keys())]
    found += [f"docs/reference/clauses.md lists {one}, which no page has" for one in sorted(rows.keys() - every)]
    carried: set[str] = set()
    for folder in (root / "src" / "penstock" / "testing" / "clauses", root / "tests"):
        for path in folder.rglob("*.py"):
            carried.update(CARRIED.findall(path.read_text()))
    checked = {one for one, state in rows.items() if state == "checked"}
    found += [f"{one} is called checked, but nothing carries it" for one in sorted(checked - carried)]
    found += [f"{one} is called planned, but its page is finished" for one in sorted(_unfinished(rows))]
    found += [f"{one} has a check, but docs/reference/clauses.md does not say so" for one in sorted(carried - checked)]
    return found


def _unfinished(rows: dict[str, str]) -> set[str]:
    return {one for one, state in rows.items() if one[:3] in FINISHED and state != "checked"}


def main() -> int:
    found = problems(Path(__file__).parents[1])
    for problem in found:
        print(problem, file=sys.stderr)
    if not found:
        print("every clause that is called checked has its check")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
