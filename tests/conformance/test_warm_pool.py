"""PostgreSQL: a thread gets the connection that it had before, which has plans and caches at hand."""

from __future__ import annotations

import threading

import penstock


def test_every_thread_keeps_to_its_connection(postgres_log: penstock.Log) -> None:
    store = postgres_log.store
    with store.connection() as first, store.connection() as second, store.connection() as third:
        backends = {one.info.backend_pid for one in (first, second, third)}
    assert len(backends) == 3

    def used(times: int) -> list[int]:
        pids = []
        for _ in range(times):
            with store.connection() as one:
                pids.append(one.info.backend_pid)
        return pids

    (mine,) = set(used(5))
    others: list[int] = []
    thread = threading.Thread(target=lambda: others.extend(used(5)))
    thread.start()
    thread.join()
    assert set(used(5)) == {mine} and len(set(others)) == 1 and mine not in others
    with store.connection() as one, store.connection() as two:
        assert one.info.backend_pid == mine and two.info.backend_pid != mine
    with store.connection() as one:  # of the thread that has ended, or a third one: whoever rests is used
        assert one.info.backend_pid in backends
