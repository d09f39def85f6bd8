"""Skipped tests must be expected: tests/skips.txt lists them, each with a reason."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path


def strict(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether an unexpected skip fails the run."""
    return any(environment.get(name, "") not in ("", "0", "false") for name in ("CI", "PENSTOCK_STRICT_SKIPS"))


def read_allowed(path: Path) -> dict[str, str]:
    """Node id prefixes and the reasons for which tests below them may be skipped."""
    allowed = {}
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        prefix, _, reason = (part.strip() for part in line.partition(" # "))
        if not reason:
            raise ValueError(f"{path.name}:{number}: write `nodeid-prefix  # reason`")
        allowed[prefix] = reason
    return allowed


def unexpected(skipped: Iterable[str], allowed: Iterable[str]) -> list[str]:
    """The skipped node ids that no allowed prefix covers."""
    prefixes = tuple(allowed)
    return sorted({nodeid for nodeid in skipped if not nodeid.startswith(prefixes)})
