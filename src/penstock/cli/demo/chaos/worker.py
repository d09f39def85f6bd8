"""A worker process of the demo: `python -m penstock.cli.demo.chaos.worker STREAM`, on the log in $PENSTOCK_URL."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Nothing is left behind if the demo itself is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def main(stream: str, parent: int) -> None:
    """Run all groups of the shop on the local engine until SIGTERM."""
    die_with_parent(parent)
    from penstock.cli.demo.chaos.shop import app

    app(stream).run("local")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
