"""Fails when docs/roadmap.md calls an acceptance id finished and no test shows it.

Tests name ids with `@pytest.mark.shows("K01", ...)`, on a function, a class or in `pytestmark`.
"""

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

SECTION = "## Finished ids"
ID = re.compile(r"[KSJROX]\d\d")
ROW = re.compile(r"\|\s*([A-Z]+\d+)\s*\|")


def finished_ids(roadmap: str) -> set[str]:
    """The ids in the first column of the section's table."""
    ids: set[str] = set()
    inside = False
    for line in roadmap.splitlines():
        if line.startswith("## "):
            inside = line.strip() == SECTION
        elif inside and (row := ROW.match(line)):
            ids.add(row[1])
    return ids


def shown_ids(source: str) -> Iterator[tuple[int, str | None]]:
    """Line and id of every `pytest.mark.shows(...)` in a test file; None for an id that is not a literal."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("pytest.mark.shows", "mark.shows"):
            for argument in node.args:
                literal = isinstance(argument, ast.Constant) and isinstance(argument.value, str)
                yield argument.lineno, argument.value if literal else None  # type: ignore[attr-defined]


def problems(root: Path) -> list[str]:
    """What is wrong in the project at `root`, one line each."""
    found: list[str] = []
    roadmap = root / "docs" / "roadmap.md"
    text = roadmap.read_text()
    if SECTION not in text.splitlines():
        found.append(f"docs/roadmap.md has no section {SECTION!r}")
    finished = finished_ids(text)
    found += [f"docs/roadmap.md: {id_} is no acceptance id" for id_ in sorted(finished) if not ID.fullmatch(id_)]
    shown: set[str] = set()
    for path in sorted((root / "tests").rglob("*.py")):
        for line, id_ in shown_ids(path.read_text()):
            if id_ is None or not ID.fullmatch(id_):
                found.append(f"{path.relative_to(root)}:{line}: {id_ or 'not a literal'}: ids look like K01")
            else:
                shown.add(id_)
    found += [f"{id_} is finished in docs/roadmap.md, but no test shows it" for id_ in sorted(finished - shown)]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Check that finished acceptance ids are shown by tests.")
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).parents[1])
    root = parser.parse_args().root
    found = problems(root)
    for problem in found:
        print(problem, file=sys.stderr)
    if not found:
        finished = finished_ids((root / "docs" / "roadmap.md").read_text())
        print(f"{len(finished)} finished ids, all shown by tests")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
