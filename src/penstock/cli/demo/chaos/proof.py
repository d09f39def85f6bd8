"""The proof: plain SQL over the shop's tables and the log's. Every answer is two equal numbers, or 0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.cli.demo.chaos.shop import FRAUD, GROUPS, LEDGER, MAIL, receipts
from penstock.cli.demo.checks import Check, asked
from penstock.cli.demo.database import Database


class _Question(NamedTuple):
    what: str
    sql: str
    parameters: str  # one letter for each: s the stream, r the stream of receipts


_NOTHING_LOST: Final = (
    _Question(
        "orders in the shop's table = events in the log",
        """
        select (select count(*) from chaos_orders where stream = ?),
               (select count(*) from penstock.events where stream = ?)
        """,
        "ss",
    ),
    _Question(
        "deliveries that are neither PUBLISHED nor DEAD",
        "select count(*) from penstock.delivery where stream = ? and state not in ('PUBLISHED', 'DEAD')",
        "s",
    ),
    _Question(
        f"DEAD deliveries = orders without a country, which {FRAUD} gives up on",
        """
        select (select count(*) from penstock.delivery where stream = ? and state = 'DEAD'),
               (select count(*) from chaos_orders where stream = ? and country is null)
        """,
        "ss",
    ),
    *(
        _Question(
            f"{group}: orders that are done and have no effect",
            f"""
            select count(*) from (
              select id from chaos_orders where stream = ?{" and country is not null" if group == FRAUD else ""}
              except
              select order_id from chaos_effects where stream = ? and group_name = '{group}') missing
            """,
            "ss",
        )
        for group in GROUPS
    ),
)
_NOTHING_TWICE: Final = (
    _Question(
        "effects = orders with an effect, over all groups",
        """
        select count(*), (select count(*) from (select distinct group_name, order_id from chaos_effects
                                                 where stream = ?) once)
          from chaos_effects where stream = ?
        """,
        "ss",
    ),
    _Question(
        f"receipts that {MAIL} emitted = orders it has published",
        """
        select (select count(*) from penstock.events where stream = ?),
               (select count(*) from penstock.delivery
                 where stream = ? and group_name = 'mail' and state = 'PUBLISHED')
        """,
        "rs",
    ),
)
_ORDER_AND_STATE: Final = (
    _Question(
        f"{LEDGER}: effects out of the order of their customer",
        """
        select count(*) from (
          select nth, lag(nth, 1, 0) over (partition by customer order by entry) as before
            from chaos_effects where stream = ? and group_name = 'ledger') booked
         where nth <> before + 1
        """,
        "s",
    ),
    _Question(
        "customers whose total in the state is not the sum of their orders",
        """
        select count(*) from (
          select customer from (
            select customer, cents from chaos_orders where stream = ?
            union all
            select key, -cast(value as bigint)
              from penstock.state join penstock.groups using (group_id)
             where stream = ? and group_name = 'ledger' and name = 'cents'
          ) moves group by customer having sum(cents) <> 0) wrong
        """,
        "ss",
    ),
)


def prove(database: Database, stream: str, acknowledged: Sequence[int]) -> list[Check]:
    """Ask every question; `acknowledged` is how many orders each producer was told are stored."""
    names = {"s": stream, "r": receipts(stream)}
    found = [_acknowledged(database, stream, number + 1, count) for number, count in enumerate(acknowledged)]
    for one in (*_NOTHING_LOST, *_NOTHING_TWICE, *_ORDER_AND_STATE):
        found.append(asked(database, one.what, one.sql, [names[letter] for letter in one.parameters]))
    return found


def _acknowledged(database: Database, stream: str, producer: int, count: int) -> Check:
    """What a producer was told is there; one more transaction may be, whose answer was cut off."""
    sql = f"""
        select count(*), {count} from chaos_orders
         where stream = ? and producer = {producer} and number < {count}
        """
    return asked(database, f"orders that producer {producer} was told are stored", sql, [stream])
