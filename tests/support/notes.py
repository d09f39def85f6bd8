"""Notes: a file in which handlers, in whatever process, write one line per call.

Every handler process of a test imports this module, so it imports next to nothing: pytest alone takes longer than the
rest of such a process.
"""

from __future__ import annotations

import os
from pathlib import Path


def write_note(line: str) -> None:
    """Append one line to the file that $PENSTOCK_NOTES names, if any; lines of different processes do not mix."""
    path = os.environ.get("PENSTOCK_NOTES")
    if path:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(descriptor, f"{line}\n".encode())
        os.close(descriptor)


def read_notes(path: Path) -> list[list[str]]:
    """The lines that handlers wrote, split into words."""
    return [line.split() for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
