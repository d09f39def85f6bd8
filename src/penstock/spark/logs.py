"""One open log per Python process of Spark and URL: workers live on from task to task."""

from __future__ import annotations

import atexit
import gc
import os

from penstock.log.log import Log
from penstock.log.open import open_log
from penstock.spark.secrets import reveal

_opened: dict[tuple[int, str], Log] = {}  # by process: what a parent opened is not its child's


def log_at(url: str) -> Log:
    """The log of a URL (without its password, see `secrets`), opened when it is first needed and kept."""
    key = (os.getpid(), url)
    if key not in _opened:
        _opened[key] = open_log(reveal(url))
        gc.freeze()  # Spark's workers collect garbage after every task; what was imported until now is none
    return _opened[key]


@atexit.register
def _close() -> None:
    for (process, _), log in _opened.items():
        if process == os.getpid():
            log.close()
