"""PostgreSQL: whoever asks for a connection gets the one that was used last, which has plans and caches at hand."""

from __future__ import annotations

import penstock


def test_the_connection_that_was_used_last_is_used_next(postgres_log: penstock.Log) -> None:
    store = postgres_log.store
    with store.connection() as first, store.connection() as second, store.connection() as third:
        backends = [one.info.backend_pid for one in (first, second, third)]
    assert len(set(backends)) == 3
    with store.connection() as again:
        last = again.info.backend_pid
    for _ in range(5):
        with store.connection() as one:
            assert one.info.backend_pid == last
    with store.connection() as one, store.connection() as two:
        assert one.info.backend_pid == last and two.info.backend_pid != last
