"""The house rules that no linter knows: short modules, and nothing said twice.

- The median module of `src/penstock` has at most 110 lines, and none has more than 400, but for those named below.
- No ten lines stand twice in `src/`. Two dialects of one statement are two statements.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median

SOURCE = Path("src")
MEDIAN, MOST = 110, 400
LONG = {"penstock/errors.py", "penstock/log/log.py"}  # one list of errors, one facade
TWICE = 10  # lines
DIALECTS = ("postgres", "sqlite")


def main() -> int:
    """Print what is wrong; 1 if anything is."""
    wrong = [*_sizes(), *_repeated()]
    for line in wrong:
        print(line)
    return 1 if wrong else 0


def _sizes() -> Iterator[str]:
    sizes = {path: len(path.read_text().splitlines()) for path in sorted(SOURCE.rglob("*.py"))}
    written = [size for path, size in sizes.items() if path.name != "__init__.py"]
    if median(written) > MEDIAN:
        yield f"the median module has {median(written):g} lines; at most {MEDIAN} are wanted"
    for path, size in sizes.items():
        if size > MOST and path.relative_to(SOURCE).as_posix() not in LONG:
            yield f"{path} has {size} lines; at most {MOST} are wanted"


def _repeated() -> Iterator[str]:
    """Every place at which ten lines begin that stand somewhere else, too; of a longer repetition only its start."""
    found: dict[tuple[str, ...], list[tuple[Path, int]]] = defaultdict(list)
    for path in sorted([*SOURCE.rglob("*.py"), *SOURCE.rglob("*.sql")]):
        if "migrations" in path.parts:  # what was released stays as it is
            continue
        lines = [(number, line.strip()) for number, line in enumerate(path.read_text().splitlines(), 1)]
        lines = [(number, line) for number, line in lines if _says_something(line)]
        for place in range(len(lines) - TWICE + 1):
            window = lines[place : place + TWICE]
            found[tuple(line for _, line in window)].append((path, window[0][0]))
    told: set[tuple[Path, int]] = set()
    for places in found.values():
        (first, number), *others = places
        for other, at in others:
            if _two_dialects(first, other) or (other, at) in told:
                continue
            yield f"{first}:{number} and {other}:{at} say the same ten lines"
            told.update((other, at + further) for further in range(2 * TWICE))


def _says_something(line: str) -> bool:
    """Imports and closing brackets stand everywhere."""
    return bool(line.strip(")]},")) and not line.startswith(("import ", "from ", "#", "--"))


def _two_dialects(first: Path, other: Path) -> bool:
    return any(a in first.parts and b in other.parts for a, b in (DIALECTS, DIALECTS[::-1]))


if __name__ == "__main__":
    sys.exit(main())
