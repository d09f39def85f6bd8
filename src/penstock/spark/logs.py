"""One open log per process and URL: Spark's Python workers live on from task to task."""

from __future__ import annotations

import atexit
import gc
import os

from penstock.log.log import Log
from penstock.log.open import open_log
from penstock.spark.secrets import reveal

_opened: dict[tuple[int, str], Log] = {}  # by pid: a forked process must not use its parent's connections


def log_at(url: str) -> Log:
    """Return the log of a URL (without its password, see `secrets`); opened on first use, and kept."""
    key = (os.getpid(), url)
    if key not in _opened:
        _opened[key] = open_log(reveal(url))
        gc.freeze()  # Spark's workers run the collector after every task: keep it from scanning modules
    return _opened[key]


@atexit.register
def _close() -> None:
    for (process, _), log in _opened.items():
        if process == os.getpid():
            log.close()
