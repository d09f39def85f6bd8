"""The rules about calls from several threads, and from a process that was forked."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import warnings

from penstock.declare.publisher import Message
from penstock.testing.contract.trial import Broken, Trial

_THREADS = 6
_EACH = 20
_SECONDS = 60.0


def threads(trial: Trial) -> None:
    """calls from several threads at once: every message arrives once, and every thread gets its own results"""
    batches = [[trial.message(b"%d-%d" % (one, n)) for n in range(_EACH)] for one in range(_THREADS)]
    failed: list[BaseException] = []
    together = threading.Barrier(_THREADS)

    def work(messages: list[Message]) -> None:
        try:
            together.wait(_SECONDS)
            for half in (messages[: _EACH // 2], messages[_EACH // 2 :]):
                trial.must_be_ok(half, trial.publish(half))
        except BaseException as error:
            failed.append(error)

    workers = [threading.Thread(target=work, args=(one,), daemon=True) for one in batches]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(_SECONDS)
        if worker.is_alive():
            raise Broken(f"calls from {_THREADS} threads did not end within {_SECONDS:g} s")
    if failed:
        raise failed[0]
    messages = [message for one in batches for message in one]
    for message, found in zip(messages, trial.arrived(messages), strict=True):
        if found.payload != message.payload:
            raise Broken(f"{message!r} arrived with the payload of another one")


def forked(trial: Trial) -> None:
    """a forked child publishes on connections of its own, while its parent goes on"""
    trial.send([trial.message()])
    mine, childs = ([trial.message() for _ in range(10)] for _ in range(2))
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # this process has threads, as those of users do
        child = os.fork()
    if child == 0:  # pragma: no cover
        _child(trial, childs, writing)
    os.close(writing)
    try:
        results = trial.publish(mine)
        said = _read(reading)
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if said != b"ok":
        raise Broken(f"a forked child could not publish: {said.decode(errors='replace')}")
    trial.must_be_ok(mine, results)
    trial.arrived([*mine, *childs])
    trial.send([trial.message()])


def _child(trial: Trial, messages: list[Message], writing: int) -> None:
    """Publish and report; nothing of the parent's runs in this process afterwards."""
    try:
        trial.must_be_ok(messages, trial.publish(messages))
        os.write(writing, b"ok")
    except BaseException as error:
        os.write(writing, f"{type(error).__name__}: {error}".encode(errors="replace")[:2_000])
    finally:
        sys.stdout.flush()
        os._exit(0)


def _read(descriptor: int) -> bytes:
    said = b""
    while select.select([descriptor], [], [], _SECONDS)[0]:
        more = os.read(descriptor, 4_096)
        if not more:
            return said or b"it died without a word"
        said += more
    return b"it did not end"
