"""`penstock serve` and `penstock token …`: the log over HTTP, and who may use it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import output
from penstock.cli.arguments import By, Traces, Yes
from penstock.cli.command import OPERATE, command, root, token
from penstock.cli.session import Session
from penstock.core.access import SCOPES, texts_of
from penstock.errors import MissingDependency

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.log.tokens import Token

logger = logging.getLogger("penstock")
Name = Annotated[str, typer.Argument(metavar="NAME", help="The name, which the audit shows.", show_default=False)]


@command(root, "serve", panel=OPERATE, example="penstock serve --port 8787")
def serve(
    session: Session,
    *,
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65535, help="0 takes any that is free.")
    ] = 8787,
    no_auth: Annotated[
        bool, typer.Option("--no-auth", help="No tokens; on a loopback address only.", show_default=False)
    ] = False,
    behind_tls: Annotated[
        bool,
        typer.Option(
            "--behind-tls", help="A proxy before it speaks TLS: no warning about plain HTTP.", show_default=False
        ),
    ] = False,
    rate: Annotated[
        float, typer.Option("--rate", metavar="N", min=1, help="Requests a second that each token may send.")
    ] = 1000.0,
    traces: Traces = False,
) -> None:
    """Serve the log over HTTP until Ctrl-C or SIGTERM. Tokens are those of `penstock token` and $PENSTOCK_TOKEN."""
    try:
        from penstock.engine.run_row import running
        from penstock.http.app import service
        from penstock.http.serving import PATIENCE_SECONDS, Server, auth_for, listen
        from penstock.http.upkeep import Upkeep
        from penstock.log.doctor_runs import BEHIND_TLS, SERVE, is_exposed
    except ImportError as error:
        raise MissingDependency(f"pip install 'penstock[http]': {error}.") from error

    from penstock.cli.run_lines import warnings_shown
    from penstock.telemetry.settings import Telemetry

    with (
        warnings_shown(session.json_lines, "uvicorn"),
        Telemetry(traces=traces or None).running(),
        session.open(create=True, patience_seconds=PATIENCE_SECONDS) as log,
    ):
        app = service(log, auth_for(log, host, no_auth=no_auth), requests_per_second=rate)
        with listen(host, port) as socket:
            socket.listen()  # who reads the answer may connect at once
            where = f"http://{f'[{host}]' if ':' in host else host}:{socket.getsockname()[1]}"
            session.answer({"url": where}, lambda: f"serving {session.safe_url} at {where}")
            shown = where + BEHIND_TLS if behind_tls else where
            if is_exposed(shown):
                words = "%s is plain HTTP on the network: put a proxy with TLS before it, and say --behind-tls"
                logger.warning(words, where)
            server = Server(app)
            with Upkeep(log), running(log, SERVE, [], shown, server.obey):
                server.run(sockets=[socket])


@command(token, "create", example="penstock token create billing --scope read --scope work:orders")
def create(
    session: Session,
    *,
    name: Name,
    scope: Annotated[
        list[str],
        typer.Option(
            "--scope",
            metavar="SCOPE[:STREAM]",
            help=f"{', '.join(SCOPES)}; of one stream, or of all like shop.*; repeat it for more.",
            show_default=False,
        ),
    ],
    by: By = None,
) -> None:
    """Create a token. Its secret is printed once: only a hash of it is stored."""
    with session.open(create=True) as log:
        made = log.create_token(name, scope, by=by)
    document = {"name": made.name, "scopes": texts_of(made.grants), "token": made.secret}
    session.answer(document, lambda: f"{made.secret}")


@command(token, "list", example="penstock token list")
def listed(session: Session) -> None:
    """List the tokens, without their secrets."""
    with session.open() as log:
        found = log.tokens()
    session.answer({"tokens": [_document(one) for one in found]}, lambda: _table(found))


@command(token, "revoke", example="penstock token revoke billing")
def revoke(session: Session, *, name: Name, yes: Yes = False, by: By = None) -> None:
    """Revoke a token; running services refuse it within a second."""
    with session.open() as log:
        session.confirm_if_watched(yes, lambda: f"Revoke the token {name}? It cannot be undone.")
        gone = log.revoke_token(name, by=by)
    session.answer(_document(gone), lambda: f"{gone.name} is revoked")


def _document(one: Token) -> dict[str, Any]:
    return {
        "name": one.name,
        "scopes": texts_of(one.grants),
        "created_at": one.created_at,
        "created_by": one.created_by,
        "revoked_at": one.revoked_at,
    }


def _table(found: list[Token]) -> RenderableType:
    if not found:
        return "No tokens."
    rows = (
        (
            output.cell(one.name),
            output.cell(", ".join(texts_of(one.grants)), 80),
            output.age(one.created_at),
            output.cell(one.created_by),
            "" if one.revoked_at is None else output.age(one.revoked_at),
        )
        for one in found
    )
    return output.table(("name…", "scopes…", "created", "by…?", "revoked"), rows)
