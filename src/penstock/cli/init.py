"""`penstock init`: create or upgrade the schema, or print it for the DBA."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from penstock.cli.command import START, command, root
from penstock.cli.session import Session


@command(root, "init", panel=START, example="penstock init --url sqlite:///shop.db")
def init(
    session: Session,
    *,
    sql: Annotated[bool, typer.Option("--sql", help="Print the PostgreSQL schema and touch nothing.")] = False,
) -> None:
    """Create or upgrade the schema. Running it again does nothing."""
    if sql:
        _print_sql(session)
        return
    from penstock.log.open import initialize

    ran = initialize(session.url)
    done = f"applied {', '.join(ran)}" if ran else "the schema was up to date"
    session.answer({"url": session.safe_url, "migrations": ran}, lambda: f"{session.safe_url}: {done}")


def _print_sql(session: Session) -> None:
    from penstock.log.open import schema_script

    schema, text = schema_script(session.url)
    if session.as_json:
        session.answer({"schema": schema, "sql": text}, str)
    else:
        sys.stdout.write(text)
