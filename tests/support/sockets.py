"""The TCP sockets of a process, as Linux lists them."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_LISTEN = "0A"


def listening(pid: int) -> set[int]:
    """The ports on which a process accepts connections."""
    return {local for local, _, state in _sockets(pid) if state == _LISTEN}


def connections(pid: int, port: int) -> int:
    """How many sockets of a process are connected to a port of this machine, or were a moment ago."""
    return sum(remote == port for _, remote, state in _sockets(pid) if state != _LISTEN)


def _sockets(pid: int) -> list[tuple[int, int, str]]:
    """Local port, remote port and state of each."""
    own = set()
    for one in Path(f"/proc/{pid}/fd").glob("*"):
        with suppress(OSError):
            own.add(os.readlink(one))
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if f"socket:[{fields[9]}]" in own:
                local, remote = (int(fields[place].rpartition(":")[2], 16) for place in (1, 2))
                found.append((local, remote, fields[3]))
    return found
