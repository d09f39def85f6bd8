"""Writers that are slow, roll back and use savepoints, beside a reader and a group."""

from __future__ import annotations

import random
import threading

from tests.support.logs import MakeLog
from tests.support.raw_sql import raw


def check_nothing_is_lost(make_log: MakeLog, url: str, *, writers: int, rounds: int, most: int) -> int:  # noqa: PLR0915
    """Run the writers; the reader and the group get every committed event, once and in order. Return how many."""
    log = make_log()
    log.create_group("orders", "g")
    kept: list[int] = []
    lock = threading.Lock()
    writing = threading.Event()

    def write(seed: int) -> None:
        dice = random.Random(seed)
        own = make_log()
        with raw(url) as sql:
            for _ in range(rounds):
                sql("begin immediate" if sql.kind == "sqlite" else "begin")
                mine = []
                for _ in range(dice.randrange(1, most)):
                    if dice.random() < 0.2:
                        sql("savepoint s")
                        own.append("orders", {}, type="t", connection=sql.connection)
                        sql("rollback to savepoint s")
                    mine.append(own.append("orders", {}, type="t", connection=sql.connection).offset)
                    if dice.random() < 0.1:
                        writing.wait(dice.random() * 0.02)  # a slow transaction
                if dice.random() < 0.2:
                    sql("rollback")
                    continue
                sql("commit")
                with lock:
                    kept.extend(mine)

    read: list[int] = []
    claimed: list[int] = []
    done = threading.Event()

    def follow() -> None:
        own = make_log()
        while True:
            last = done.is_set()
            events = own.read("orders", after=read[-1] if read else 0, limit=5000)
            read.extend(event.offset for event in events)
            if last and not events:
                return

    def consume() -> None:
        own = make_log()
        while True:
            last = done.is_set()
            lease = own.claim("orders", "g", limit=500, claimed_by="w")
            if lease is not None:
                claimed.extend(event.offset for event in lease.events)
                lease.settle()
            elif last:
                return

    with raw(url) as unrelated:
        if unrelated.kind == "postgresql":
            unrelated("create table elsewhere (id int)")
            unrelated("begin")
            unrelated("insert into elsewhere values (1)")
        writers_ = [threading.Thread(target=write, args=(n,)) for n in range(writers)]
        readers = [threading.Thread(target=follow), threading.Thread(target=consume)]
        for thread in [*writers_, *readers]:
            thread.start()
        for thread in writers_:
            thread.join()
        done.set()
        for thread in readers:
            thread.join()
    assert read == sorted(set(read)) and claimed == sorted(set(claimed))
    assert set(read) == set(kept), f"{len(set(kept) - set(read))} lost by reading"
    assert set(claimed) == set(kept), f"{len(set(kept) - set(claimed))} lost by claiming"
    return len(kept)
