"""Page 004: the lifecycle of a job, as producers and workers with a loop of their own see it."""

from __future__ import annotations

from uuid import UUID

from penstock.core.job import GROUP, Job
from penstock.errors import InvalidInput, LeaseLost, UnknownJob
from penstock.log.open import open_log
from penstock.testing.clauses.bench import Bench, guarantees, refuses
from penstock.testing.clauses.registry import clause


def submit(b: Bench, n: int = 1, max_attempts: int | None = None) -> UUID:
    """Submit a job of the check's own type and return its id."""
    return b.log.submit(b.stream, {"n": n}, max_attempts=max_attempts).id


def try_claim(b: Bench, worker: str = "worker-1") -> Job | None:
    """Claim a job of the check's own type, or return None."""
    return b.log.claim_job(worker, [b.stream])


def claim(b: Bench, worker: str = "worker-1") -> Job:
    """Claim a job; the check fails if there is none."""
    job = try_claim(b, worker)
    assert job is not None, "no job was claimable"
    return job


def status(b: Bench, job: UUID) -> tuple[str, int]:
    """Return the status and the attempts of a job."""
    shown = b.log.job(job)
    return str(shown.status), shown.attempts


def expire(b: Bench, seconds: float = 30) -> None:
    """Let time pass without a heartbeat, and take back what has expired."""
    b.clock.advance(seconds)
    b.log.reap()


def _remove_finished(b: Bench, job: UUID) -> None:
    """Prune the stream of a job, with dead letters; the check fails if the job is still there."""
    shown = b.log.job(job)
    assert shown.offset is not None
    b.log.prune(shown.stream, upto=shown.offset, keep_dead=False)
    refuses(UnknownJob, lambda: b.log.job(job))


# --- the states -------------------------------------------------------------------------------------------------------


@clause("004-1", "a submitted job is unclaimed (PENDING)")
def submitted_is_unclaimed(b: Bench) -> None:
    assert status(b, submit(b))[0] == "PENDING"


@clause("004-2", "a claimed job is in progress (CLAIMED)")
def claimed_is_in_progress(b: Bench) -> None:
    job = submit(b)
    assert claim(b).id == job and status(b, job)[0] == "CLAIMED"


@clause("004-3", "a job whose heartbeats stop is unclaimed again")
def timed_out_is_unclaimed(b: Bench) -> None:
    job = submit(b)
    claim(b)
    expire(b)
    assert status(b, job) == ("PENDING", 1)


@clause("004-4", "a completed job leaves the queue (PUBLISHED); a prune removes it")
def completed_leaves_the_queue(b: Bench) -> None:
    job = submit(b)
    b.log.complete_job(claim(b).id, "worker-1")
    assert status(b, job)[0] == "PUBLISHED" and try_claim(b) is None
    _remove_finished(b, job)


@clause("004-5", "an exhausted job leaves the queue (DEAD); a prune may remove it")
def exhausted_leaves_the_queue(b: Bench) -> None:
    job = submit(b, max_attempts=1)
    claim(b)
    expire(b)
    assert status(b, job)[0] == "DEAD" and try_claim(b) is None
    assert b.log.job(job).error_code == "lease_expired", "it is kept with its reason"
    _remove_finished(b, job)


# --- submit -----------------------------------------------------------------------------------------------------------


@clause("004-6", "a producer submits a type, a payload and optionally a number of attempts")
def submit_a_job(b: Bench) -> None:
    plain = b.log.submit(b.stream, {"to": "ada"})
    often = b.log.submit(b.stream, {"to": "bob"}, max_attempts=7)
    assert (plain.type, plain.json()) == (b.stream, {"to": "ada"})
    assert b.log.job(often.id).max_attempts == 7


@clause("004-7", "many jobs are submitted at once, all of them or none")
def submit_many_jobs(b: Bench) -> None:
    refuses(InvalidInput, lambda: b.log.submit_many(b.stream, [{"payload": 1}, {"payload": 2, "max_attempts": 0}]))
    assert b.log.jobs(type=b.stream) == []
    ids = b.log.submit_many(b.stream, [{"payload": {"n": n}} for n in range(3)]).ids
    assert [job.id for job in b.log.jobs(type=b.stream)] == list(ids)


@clause("004-8", "a new job goes to the end of the queue")
def appended_at_the_end(b: Bench) -> None:
    first, second = submit(b), submit(b)
    last = submit(b)
    assert [job.id for job in b.log.jobs(type=b.stream)] == [first, second, last]
    assert [claim(b).id for _ in range(3)] == [first, second, last]


@clause("004-9", "a new job has a UUID and no attempts")
def new_job(b: Bench) -> None:
    one, other = submit(b), submit(b)
    assert isinstance(one, UUID) and one != other
    assert status(b, one)[1] == status(b, other)[1] == 0


# --- claim ------------------------------------------------------------------------------------------------------------


@clause("004-10", "a worker claims a job with its name and optionally a list of types")
def claim_a_job(b: Bench) -> None:
    mail = b.log.submit(f"{b.stream}:mail", {}, queue=b.stream).id
    report = b.log.submit(f"{b.stream}:report", {}, queue=b.stream).id
    one = b.log.claim_job("worker-1", [f"{b.stream}:report"], b.stream)
    other = b.log.claim_job("worker-1", queue=b.stream)
    assert one is not None and other is not None and (one.id, other.id) == (report, mail)


@clause("004-11", "of the jobs of the wanted types the oldest is claimed first")
def first_in_first_out(b: Bench) -> None:
    types = [f"{b.stream}:{kind}" for kind in ("mail", "report", "other")]
    jobs = [b.log.submit(types[n % 3], {"n": n}).id for n in range(6)]
    wanted = [job for n, job in enumerate(jobs) if n % 3 < 2]
    first = b.log.claim_job("worker-1", types[:2])
    expire(b)
    claimed = [b.log.claim_job("worker-1", types[:2]) for _ in (*wanted, "none")]
    assert first is not None and first.id == wanted[0]
    assert [job and job.id for job in claimed] == [*wanted, None], "an expired job has its old place"


@clause("004-12", "whether a job is unclaimed or in progress can be read")
def status_is_readable(b: Bench) -> None:
    working, waiting = submit(b), submit(b)
    claim(b)
    assert [job.id for job in b.log.jobs(type=b.stream, state="CLAIMED")] == [working]
    assert [job.id for job in b.log.jobs(type=b.stream, state="PENDING")] == [waiting]
    assert "| `unclaimed` | PENDING |" in guarantees() and "| `in_progress` | CLAIMED |" in guarantees()


@clause("004-13", "a claim records the worker")
def worker_is_recorded(b: Bench) -> None:
    job = submit(b)
    assert claim(b, "worker-7").worker == "worker-7" == b.log.job(job).worker


@clause("004-14", "a claim sets the time of the heartbeat")
def heartbeat_is_set(b: Bench) -> None:
    job = submit(b)
    b.clock.advance(3)
    claim(b)
    assert b.log.job(job).heartbeat_at == b.clock.now()


@clause("004-15", "a claim adds one to the attempts")
def claim_counts(b: Bench) -> None:
    job = submit(b)
    assert claim(b).attempts == 1
    expire(b)
    assert claim(b).attempts == 2 and status(b, job) == ("CLAIMED", 2)


@clause("004-16", "without a job of these types a claim returns nothing")
def nothing_to_claim(b: Bench) -> None:
    assert try_claim(b) is None
    submit(b)
    assert b.log.claim_job("worker-1", [f"{b.stream}:other"]) is None
    assert try_claim(b) is not None and try_claim(b) is None


# --- heartbeat, complete ----------------------------------------------------------------------------------------------


@clause("004-18", "a heartbeat records its time and extends the claim")
def heartbeat_extends(b: Bench) -> None:
    job = submit(b)
    claim(b)
    b.clock.advance(20)
    assert b.log.heartbeat(job, "worker-1") == "extended" and b.log.job(job).heartbeat_at == b.clock.now()
    expire(b, 20)
    assert status(b, job) == ("CLAIMED", 1)


@clause("004-19", "a heartbeat takes the job and the worker; in another process it needs the token of the claim, too")
def heartbeat_by_id_and_worker(b: Bench) -> None:
    job = submit(b)
    held = claim(b)
    assert b.log.heartbeat(job, "worker-1") == "extended"
    refuses(LeaseLost, lambda: b.log.heartbeat(job, "worker-2"))
    with open_log(b.url, clock=b.clock) as other:
        refuses(LeaseLost, lambda: other.heartbeat(job, "worker-1"))
        assert other.heartbeat(job, "worker-1", token=held.token) == "extended"


@clause("004-20", "a worker completes the job it holds")
def complete_a_job(b: Bench) -> None:
    job = submit(b)
    claim(b)
    refuses(LeaseLost, lambda: b.log.complete_job(job, "worker-2"))
    b.log.complete_job(job, "worker-1")
    assert status(b, job) == ("PUBLISHED", 1)


@clause("004-21", "a completed job is no longer in the queue")
def completed_is_gone(b: Bench) -> None:
    job, other = submit(b), submit(b)
    b.log.complete_job(claim(b).id, "worker-1")
    assert [one.id for one in b.log.jobs(type=b.stream, state="PENDING")] == [other]
    expire(b, 3600)
    assert claim(b).id == other and try_claim(b) is None
    _remove_finished(b, job)


@clause("004-22", "completed jobs are counted")
def completed_are_counted(b: Bench) -> None:
    job = submit(b)
    submit(b)
    b.log.complete_job(claim(b).id, "worker-1")
    (counts,) = b.log.stats(b.log.job(job).stream, GROUP).groups
    assert (counts.published, counts.pending) == (1, 1)


# --- expiry -----------------------------------------------------------------------------------------------------------


@clause("004-23", "a claim without heartbeats expires, even if nobody submits or claims")
def claims_expire(b: Bench) -> None:
    job = submit(b)
    claim(b)
    expire(b)
    shown = b.log.job(job)
    assert (shown.status, shown.worker, shown.error_code) == ("PENDING", None, "lease_expired")


@clause("004-24", "a claim expires 30 seconds after its last heartbeat, unless it says otherwise")
def thirty_seconds(b: Bench) -> None:
    job = submit(b)
    claim(b)
    expire(b, 29.9)
    assert status(b, job)[0] == "CLAIMED"
    expire(b, 0.1)
    assert status(b, job)[0] == "PENDING"
    assert b.log.claim_job("worker-1", [b.stream], lease_seconds=90) is not None
    expire(b, 89.9)
    assert status(b, job)[0] == "CLAIMED"


@clause("004-25", "a job has three attempts, unless it says otherwise")
def three_attempts(b: Bench) -> None:
    job = submit(b)
    for attempt in (1, 2, 3):
        assert status(b, job) == ("PENDING", attempt - 1)
        claim(b)
        expire(b)
    assert status(b, job) == ("DEAD", 3) and b.log.job(job).max_attempts == 3


@clause("004-26", "a claim that expires at the last attempt takes the job out of the queue")
def last_attempt(b: Bench) -> None:
    once, twice = submit(b, max_attempts=1), submit(b, max_attempts=2)
    claim(b)
    claim(b)
    expire(b)
    assert (status(b, once), status(b, twice)) == (("DEAD", 1), ("PENDING", 1))
    assert claim(b).id == twice
    expire(b)
    assert status(b, twice) == ("DEAD", 2) and try_claim(b) is None


@clause("004-27", "after a crash or a partition another worker does the job, and the first one changes nothing")
def crash_or_partition(b: Bench) -> None:
    job = submit(b)
    lost = claim(b)
    b.clock.advance(30)
    with open_log(b.url, clock=b.clock) as other:
        again = other.claim_job("worker-2", [b.stream])
        assert again is not None and (again.id, again.attempts) == (job, 2)
        refuses(LeaseLost, lambda: b.log.heartbeat(job, "worker-1", token=lost.token))
        refuses(LeaseLost, lambda: b.log.complete_job(job, "worker-1", token=lost.token))
        other.complete_job(job, "worker-2")
    assert status(b, job) == ("PUBLISHED", 2)
