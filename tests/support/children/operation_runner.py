"""A process that runs operations until it is killed. Its lease is short, so that others soon go on in its place."""

from __future__ import annotations

import sys

import penstock
from penstock.core import limits


def main(url: str, lease_seconds: str) -> None:
    limits.OPERATION_LEASE_SECONDS = float(lease_seconds)  # type: ignore[misc]
    limits.OPERATION_LOOK_SECONDS = 0.05  # type: ignore[misc]
    limits.OPERATION_BATCH = 40  # type: ignore[misc]
    with penstock.open(url) as log:
        print("ready", flush=True)
        while True:
            log.run_operations(1.0)


if __name__ == "__main__":
    main(*sys.argv[1:])
