"""Heartbeat, progress, complete and fail: what the holder of a job says of it."""

from __future__ import annotations

from typing import Any

from penstock.core import codec
from penstock.core.event import check_text
from penstock.core.lease import Settlement
from penstock.core.signals import Permanent, failure_of, is_a
from penstock.errors import InvalidInput, LeaseLost
from penstock.log import checks, release, settle
from penstock.log.jobs.held import HeldJobs
from penstock.log.transact import transact
from penstock.stores.base import Store, Transaction


def heartbeat(
    store: Store, held: HeldJobs, job_id: Any, worker: Any, token: Any, progress: Any = None, message: Any = None
) -> str:
    """Extend the lease of a job: "extended", or "cancel" if somebody wants the job to end."""
    done, text = check_progress(progress), check_text(message, "message")
    one, known = held.proof(store, job_id, worker, token)

    def work(tx: Transaction) -> str:
        release.extend_in(tx, known.lease, known.token, None)
        if done is not None or text is not None:
            tx.run("jobs.note", offset=known.offset, progress=done, message=text, now=tx.now())
        return "cancel" if tx.rows("jobs.cancelled", offset=known.offset, lease=known.lease) else "extended"

    try:
        return transact(store, work)
    except LeaseLost:
        held.forget(one, known.token)
        raise


def check_progress(progress: Any) -> float | None:
    """Check how much of a job is done: a number from 0 to 1."""
    if progress is None:
        return None
    if isinstance(progress, bool) or not isinstance(progress, int | float) or not 0 <= progress <= 1:
        raise InvalidInput(f"progress must be a number from 0 to 1, not {str(progress)[:60]}.")
    return float(progress)


def complete(store: Store, held: HeldJobs, job_id: Any, worker: Any, token: Any, result: Any) -> None:
    """Finish a job; the same call again is harmless."""
    one, known = held.proof(store, job_id, worker, token)
    results = {} if result is None else {known.offset: encode_result(result)}
    settle.settle(store, known.lease, known.token, Settlement(upto=known.high, results=results))
    held.forget(one, known.token)


def encode_result(result: Any) -> str:
    """Return what a job returned as JSON text; `InvalidPayload` if it is not JSON, `TooLarge` if it is too long."""
    return codec.encode_json(result).decode()


def fail(
    store: Store, held: HeldJobs, job_id: Any, worker: Any, token: Any, error: Any, retry_in: float | None
) -> None:
    """Count a failure: the job waits for its backoff, or `retry_in` seconds, or is DEAD."""
    one, known = held.proof(store, job_id, worker, token)
    failure = failure_of("failed" if error is None else error)
    if retry_in is not None:
        failure = failure._replace(retry_after_seconds=checks.seconds(retry_in, "retry_in"))
    outcome = {known.offset: failure}
    dead = is_a(error, Permanent)
    said = Settlement(failed={} if dead else outcome, dead=outcome if dead else {}, upto=known.high)
    settle.settle(store, known.lease, known.token, said)
    held.forget(one, known.token)
