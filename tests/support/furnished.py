"""A log with something for every page: work, retries, dead letters, a paused group, a halted key, a job, a run."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import penstock
from penstock import Retry
from penstock.log.runs import NewRun
from tests.support.raw_sql import raw

HOSTILE = '<script>alert("x")</script>'
STREAM, GROUP = "orders", "fraud"


def furnish(log: penstock.Log, events: int = 200) -> dict[str, Any]:
    """Fill a log; everything is done through it, but for the numbers of the last hours."""
    chance = random.Random(7)
    retry = Retry(max_attempts=3, base_seconds=600, jitter=0)
    log.create_group(STREAM, GROUP, ordering="key", on_dead="halt", retry=retry, types=["order.*"])
    log.create_group(STREAM, "lake")
    log.create_group(STREAM, "mail")
    log.create_group("payments", "ledger", lanes=4, keyed=True)
    log.bind(STREAM, GROUP, types=["order.*", "refund.*"], by="ada")
    kinds = ("order.created", "order.paid", "order.shipped", "refund.issued")
    made = log.append_many(
        STREAM,
        [
            {
                "payload": {"id": n, "amount": chance.randrange(100_000) / 100, "customer": f"c-{n % 17}"},
                "type": kinds[chance.randrange(4)],
                "ordering_key": f"c-{n % 17}",
            }
            for n in range(events)
        ],
    )
    log.append_many(
        "payments", [{"payload": {"n": n}, "type": "payment.taken", "ordering_key": f"p-{n}"} for n in range(60)]
    )
    _work(log, STREAM, "lake", 150)
    _work(log, "payments", "ledger", 60)
    _fail(log)
    log.claim(STREAM, "lake", limit=20, claimed_by="w-7 exec-2")
    log.pause(STREAM, "mail", reason="the mail server is being replaced", by="grace")
    log.submit("email:send", {"to": "ada@example.org"})
    log.start_run(NewRun("shop", "shop.py", "local", "0.1", "host-1", 4711, (f"{STREAM}/{GROUP}",)))
    log.create_token("billing", ["read", f"operate:{STREAM}"], by="ada")
    log.schedule("nightly", "0 3 * * *", type="report", tz="Europe/Berlin")
    dead = log.deliveries(STREAM, GROUP, state="DEAD", limit=1)[0]
    operation = log.operation(
        *("redrive", STREAM, GROUP), all=True, canary=1, stop_on_return=1, reason="deployed 4.2", by="ada"
    )
    number = operation.start().id
    operation.pause(by="ada")
    return {"ids": [str(one) for one in made.event_ids], "values": {"which": dead.event_id, "number": number}}


def _work(log: penstock.Log, stream: str, group: str, most: int) -> None:
    done = 0
    while done < most and (lease := log.claim(stream, group, limit=min(50, most - done), claimed_by="w-1")):
        done += len(lease.events)
        lease.settle()


def _fail(log: penstock.Log) -> None:
    """Some succeed, some retry, some die; keys halt."""
    for _ in range(6):
        lease = log.claim(STREAM, GROUP, limit=12, claimed_by="w-3")
        if lease is None:
            return
        ids = [event.event_id for event in lease.events]
        lease.settle(
            failed={ids[0]: "KeyError: 'risk'"}, dead={one: "ValueError: no such customer" for one in ids[1:2]}
        )


def past(log: penstock.Log, minutes: int = 70) -> None:
    """Numbers of the last minutes, as maintenance would have recorded them; for ten of them nobody looked."""
    chance = random.Random(11)
    lite = log.store.kind == "sqlite"
    now = datetime.now(UTC).replace(second=0, microsecond=0)

    def stamp(at: datetime) -> str:
        return str(int(at.timestamp()) * 1_000_000) if lite else f"'{at.isoformat()}'"

    rounds, rows = [], []
    with raw(log.store.url) as sql:
        groups = sql("select group_id, stream, group_name from penstock.groups order by group_id")
        for back in range(1, minutes):
            if 24 <= back < 34:
                continue
            at = stamp(now - timedelta(minutes=back))
            rounds.append(f"({at}, 60, {1 if lite else 'true'})")
            rows += [
                f"(null, '{one}', {at}, 60, 0, 0, 0, {500 + chance.randrange(400)}, null, null)" for one in _STREAMS
            ]
            rows += [_row(number, name, back, at, chance) for number, _, name in groups]
        sql(f"insert into penstock.metric_round (at, seconds, at_start) values {', '.join(rounds)}")
        columns = "group_id, stream, at, seconds, published, failed, dead, appended, lag, oldest_seconds"
        sql(f"insert into penstock.metric ({columns}) values {', '.join(rows)}")
        sql(f"update penstock.metric_turn set began_at = {stamp(now - timedelta(days=9))}, recorded_at = {stamp(now)}")


_STREAMS = (STREAM, "payments")


def _row(number: int, name: str, back: int, at: str, chance: random.Random) -> str:
    """One minute of a group: the paused one stopped, the failing one falls behind."""
    done = 0 if name == "mail" and back < 40 else 600 + chance.randrange(500) + 300 * ((back // 9) % 2)
    lag = int(90 * max(0, 50 - back)) if name in (GROUP, "mail") else chance.randrange(60)
    dead = chance.randrange(4) if name == GROUP and back < 30 else 0
    return f"({number}, null, {at}, 60, {done}, {3 * dead}, {dead}, 0, {lag}, {lag / 14:.2f})"
