"""A batch in the process of its type: each job is begun once, reported once, or given back."""

from __future__ import annotations

import threading
from collections import Counter

from penstock.core.batch import Events
from penstock.core.columns import RowColumns
from penstock.engine.jobs.batch import Batch
from penstock.engine.jobs.fed import Fed
from penstock.log.lease import Lease
from tests.support.logs import MakeLog


def fed(jobs: int) -> Fed:
    return Fed(7, Events(RowColumns([(n,) for n in range(jobs)]), "jobs:default:0:a", None), token=1)


def test_what_ended_is_news_once_and_a_range_if_it_can_be_one() -> None:
    batch = fed(10)
    assert batch.waits and batch.news() == ()
    for place in (1, 0, 2):
        batch.ended.append(place)
    assert batch.news() == range(3) and batch.news() == ()
    for place in (9, 5):
        batch.ended.append(place)
    assert batch.news() == [9, 5] and not batch.is_over


def test_what_has_begun_and_was_not_reported_is_running() -> None:
    batch = fed(6)
    begun = [next(batch.waiting) for _ in range(4)]
    batch.ended += begun[:2]
    batch.news()
    batch.ended.append(begun[2])  # ended since, and not reported yet
    batch.give_back()
    assert not batch.waits and next(batch.waiting, None) is None
    assert batch.running() == {2, 3} and not batch.is_over
    batch.ended.append(3)
    assert batch.news() == range(2, 4) and batch.is_over and batch.running() == frozenset()


def test_threads_begin_each_job_once_while_the_rest_is_given_back() -> None:
    """Whatever a thread has begun when the others are given back lies before them."""
    batch = fed(200_000)
    begun: list[int] = []
    half = threading.Event()

    def work() -> None:
        for place in batch.waiting:
            begun.append(place)
            if place == 100_000:
                half.set()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for one in threads:
        one.start()
    half.wait()
    batch.give_back()
    for one in threads:
        one.join()
    assert batch.running() == frozenset(begun) == frozenset(range(len(begun)))
    assert set(Counter(begun).values()) == {1}


def test_a_batch_ends_jobs_by_ranges_and_one_by_one(make_log: MakeLog) -> None:
    log = make_log()
    log.submit_many("a", [{"payload": {"n": n}} for n in range(10)])
    (lease,) = log.job_claims.lease(log.job_claims.wanted(["a"], "default"), 10, "w", None)
    assert isinstance(lease, Lease)
    batch = Batch(lease)
    batch.end(3)
    batch.end_all(range(2, 6))  # one of them is known already
    batch.end_all([0, 9])
    assert batch.left == 4 and batch.unended() == [1, 6, 7, 8]
    batch.end_all(range(6, 9))
    assert batch.left == 1 and batch.waits_since is not None
    batch.end_all(range(1, 2))
    assert (batch.left, batch.unended(), batch.settle().published) == (0, [], 10)
