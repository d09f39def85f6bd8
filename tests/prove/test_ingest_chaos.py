"""Two ingesters of one source that are killed and frozen, while connections are cut and the database goes away.

Every entry becomes an event, once; what the source was told to be done with is in the log.
"""

from __future__ import annotations

import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Producer

import penstock
from penstock.errors import AWAY
from tests.support.byte_proxy import ByteProxy
from tests.support.children import ingester
from tests.support.kafka_broker import KafkaBroker
from tests.support.postgres_server import PostgresServer
from tests.support.running import PYTHONPATH, Running
from tests.support.valkey_server import ValkeyServer
from tests.support.waiting import wait_until

SECONDS = 30.0
TERMINATE = "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and datname = %s"
Act = Callable[[], object]


class Ingesters:
    """Two of them; one that is killed is replaced."""

    def __init__(self, stack: ExitStack, directory: Path, rng: random.Random, *command: str) -> None:
        self._stack, self._directory, self._rng, self._command = stack, directory, rng, command
        self._started = 0
        self._running = [self._start(place) for place in range(2)]

    def _start(self, place: int) -> Running:
        self._started += 1
        directory = self._directory / f"ingester-{self._started}"
        directory.mkdir()
        batch = str(self._rng.choice([1, 7, 50, 500]))
        command = (sys.executable, ingester.__file__, *self._command, f"c{place}", batch)
        return self._stack.enter_context(Running(directory, *command, environment={"PYTHONPATH": PYTHONPATH}))

    def kill(self) -> None:
        place = self._rng.randrange(2)
        self._running[place].process.kill()
        self._running[place].wait()
        self._running[place] = self._start(place)

    def freeze(self) -> None:
        """For less or more than the time after which others take its entries over."""
        victim = self._rng.choice(self._running).process
        victim.send_signal(signal.SIGSTOP)
        time.sleep(self._rng.choice([0.3, 0.6, 1.5, 2.5]))  # the freeze itself; nothing is waited for
        victim.send_signal(signal.SIGCONT)

    def check_all_run(self) -> None:
        assert all(one.process.poll() is None for one in self._running), [one.err for one in self._running]


def database_acts(server: PostgresServer, name: str) -> list[Act]:
    def terminate() -> None:
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute(TERMINATE, (name,))

    def restart() -> None:
        server.kill()
        server.start()

    return [terminate, terminate, restart]


def stored(url: str) -> list[int]:
    """The numbers of all events, in the order of the log; nothing while the database is away."""
    try:
        with penstock.open(url) as log:
            assert log.read("clicks.rejected") == []
            return [int(event.json()["n"]) for event in log.read("clicks", limit=1_000_000)]
    except AWAY:
        return []


def disturb(rng: random.Random, ingesters: Ingesters, add: Callable[[int], object], acts: list[Act]) -> None:
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        add(rng.choice([1, 5, 40, 150]))
        ingesters.check_all_run()
        if rng.random() < 0.5:
            rng.choice([*acts, ingesters.kill, ingesters.kill, ingesters.freeze])()


@pytest.mark.shows("R07", "R11", "X02", "X03", "K42")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(4))
def test_entries_of_valkey_are_stored_once_whatever_happens(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    with ExitStack() as stack:
        valkey, server = stack.enter_context(ValkeyServer("s3cret-word")), stack.enter_context(PostgresServer())
        proxy = stack.enter_context(ByteProxy(valkey.port))
        url = server.create_database()
        penstock.open(url).close()
        through = valkey.url.replace(str(valkey.port), str(proxy.port))
        ingesters = Ingesters(stack, tmp_path, rng, url, "valkey", through)
        client, sent = valkey.client(), 0

        def add(count: int) -> None:
            nonlocal sent
            pipeline = client.pipeline(transaction=False)
            for n in range(sent, sent + count):
                pipeline.xadd("clicks", {"n": n})
            pipeline.execute()
            sent += count

        def group_vanishes() -> None:
            client.xgroup_destroy("clicks", "penstock")

        acts: list[Act] = [
            *database_acts(server, url.rpartition("/")[2]),
            lambda: proxy.cut_after(up=rng.randrange(1, 400)),
            lambda: proxy.cut_after(down=rng.randrange(1, 4_000)),
            partial(client.execute_command, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"),
        ]
        if seed % 2:  # then everything is read again: what was lost before would not be noticed
            acts.append(group_vanishes)
        disturb(rng, ingesters, add, acts)
        wait_until(lambda: len({*stored(url)}) == sent, "every entry to be stored", 90)
        wait_until(lambda: client.xpending("clicks", "penstock")["pending"] == 0, "every entry to be acknowledged", 30)
        assert Counter(stored(url)) == {n: 1 for n in range(sent)}


@pytest.mark.shows("R07", "R11", "X02", "X03", "K42")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(3))
def test_messages_of_kafka_are_stored_once_and_in_order_whatever_happens(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    with ExitStack() as stack:
        broker, server = stack.enter_context(KafkaBroker()), stack.enter_context(PostgresServer())
        broker.create_topic("clicks")
        url = server.create_database()
        penstock.open(url).close()
        ingesters = Ingesters(stack, tmp_path, rng, url, "kafka", broker.servers)
        producer, sent = Producer({"bootstrap.servers": broker.servers, "log_level": 0, "enable.idempotence": True}), 0

        def add(count: int) -> None:
            nonlocal sent
            for n in range(sent, sent + count):
                producer.produce("clicks", b'{"n":%d}' % n, b"k%d" % (n % 6))
            assert producer.flush(10) == 0
            sent += count

        disturb(rng, ingesters, add, database_acts(server, url.rpartition("/")[2]))
        wait_until(lambda: len({*stored(url)}) == sent, "every message to be stored", 90)
        found = stored(url)
        assert Counter(found) == {n: 1 for n in range(sent)}
        for key in range(6):
            mine = [n for n in found if n % 6 == key]
            assert mine == sorted(mine), f"key k{key}"
