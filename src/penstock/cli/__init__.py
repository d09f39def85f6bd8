"""The command line: `penstock --help`."""

from __future__ import annotations


def main() -> None:
    """The console script: runs `sys.argv` and ends the process with 0 (done), 1 (failed) or 2 (wrong usage)."""
    from penstock.cli.app import run_and_exit

    run_and_exit()
