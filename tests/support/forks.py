"""Run something in a forked child that is meant to be killed."""

from __future__ import annotations

import faulthandler
import os
import signal
import traceback
from collections.abc import Callable

_PATIENCE_SECONDS = 90


def killed_in_child(work: Callable[[], object]) -> bool:
    """Run this in a child process; return whether SIGKILL ended it. Any other failure fails the test."""
    child = os.fork()
    if child == 0:
        try:
            faulthandler.dump_traceback_later(_PATIENCE_SECONDS, exit=True)  # one that hangs says where
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0, "failed without being killed"
    return False
