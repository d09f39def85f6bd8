"""Pages of the reference that are made from the code: docstrings, the command line's help, HTTP routes, tables.

The pages in docs/reference are written by hand and say what things are for; these show them whole.
"""

from __future__ import annotations

import inspect
import json
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_PLACE = "reference/generated"


def made_pages(root: Path) -> dict[str, str]:
    """The pages by their path in the site."""
    return {
        f"{_PLACE}/python.md": _python(),
        f"{_PLACE}/cli.md": _cli(),
        f"{_PLACE}/http.md": _http(json.loads((root / "docs" / "openapi.json").read_text(encoding="utf-8"))),
        f"{_PLACE}/tables.md": _tables(),
    }


# --- Python -----------------------------------------------------------------------------------------------------------


def _python() -> str:
    """What mkdocstrings makes pages of; the errors have a page of their own."""
    import penstock
    import penstock.testing

    parts: dict[str, list[str]] = {
        "The log": ["open", "Log", "Lease"],
        "Apps": ["App", "Context", "BatchContext", "Outcome"],
        "Values": [],
        "Testing": [f"testing.{name}" for name in penstock.testing.__all__],
    }
    named = {name for names in parts.values() for name in names}
    for name in penstock.__all__:
        thing = getattr(penstock, name)
        if name not in named and not inspect.ismodule(thing) and not _is_error(thing):
            parts["Values"].append(name)
    parts["Sinks"] = [f"sinks.{name}" for name in ("Table", "Stream", "Parquet", "ForeachBatch")]
    parts["Publishers and sources"] = [f"connect.{name}" for name in penstock.connect.__all__]
    about = "Signatures and docstrings of the public names. [Python](../python.md) explains them."
    lines = ["# Python docstrings", "", about]
    for title, names in parts.items():
        lines += ["", f"## {title}"]
        lines += [f"\n::: penstock.{name}" for name in names]
    return "\n".join(lines) + "\n"


def _is_error(thing: object) -> bool:
    from penstock.errors import PenstockError

    return isinstance(thing, type) and issubclass(thing, PenstockError)


# --- the command line -------------------------------------------------------------------------------------------------


def _cli() -> str:
    import typer

    import penstock.cli.app  # noqa: F401  # registers the commands
    from penstock.cli.command import root

    lines = ["# Command line help", "", "What `--help` prints. [Command line](../cli.md) explains every command."]
    command = typer.main.get_command(root)
    context = command.make_context("penstock", [], resilient_parsing=True)
    for path, text in _helps(command, context):
        lines += ["", f"## {path}", "", "```text", text.rstrip(), "```"]
    return "\n".join(lines) + "\n"


def _helps(command: Any, context: Any) -> Iterator[tuple[str, str]]:
    context.terminal_width = context.max_content_width = 100
    yield context.command_path, command.get_help(context)
    for name, inside in getattr(command, "commands", {}).items():
        yield from _helps(inside, type(context)(inside, info_name=name, parent=context))


# --- HTTP -------------------------------------------------------------------------------------------------------------


def _http(described: dict[str, Any]) -> str:
    lines = [
        "# HTTP routes",
        "",
        "Every route of [openapi.json](../../openapi.json). [HTTP](../http.md) explains how they are used.",
    ]
    for path, methods in described["paths"].items():
        for method, route in methods.items():
            lines += ["", f"## {method.upper()} {path}", "", route["description"]]
            if scope := route.get("x-scope"):
                lines += ["", f"Scope: {_code(scope)}."]
            lines += _parameters(route.get("parameters", []), described)
            lines += _body(route.get("requestBody", {}), described)
            lines += _answers(route["responses"])
    return "\n".join(lines) + "\n"


def _code(value: object) -> str:
    return " and ".join(f"`{one}`" for one in value) if isinstance(value, list) else f"`{value}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _parameters(parameters: list[dict[str, Any]], described: dict[str, Any]) -> list[str]:
    if not parameters:
        return []
    rows = [
        f"| `{one['name']}` | {one['in']} | {_type(one['schema'])} | {_cell(one.get('description', ''))} |"
        for one in (_resolved(one, described) for one in parameters)
    ]
    return ["", "| parameter | in | type | |", "|---|---|---|---|", *rows]


def _body(body: dict[str, Any], described: dict[str, Any]) -> list[str]:
    schema = body.get("content", {}).get("application/json", {}).get("schema", {})
    names = [one.get("$ref", "").rpartition("/")[2] for one in [schema, *schema.get("anyOf", [])]]
    lines: list[str] = []
    for name in filter(None, names):
        found = described["components"]["schemas"][name]
        required = found.get("required", [])
        lines += ["", f"Body, `{name}`:", "", "| member | type | |", "|---|---|---|"]
        for member, one in found.get("properties", {}).items():
            about = _cell(one.get("description", ""))
            lines.append(f"| `{member}` | {_type(one)} | {'required' if member in required else ''} {about} |")
        for example in found.get("examples", [])[:1]:
            lines += ["", "```json", json.dumps(example, indent=2, ensure_ascii=False), "```"]
    return lines


def _answers(responses: dict[str, Any]) -> list[str]:
    lines = ["", "| status | |", "|---|---|"]
    lines += [f"| {status} | {_cell(one['description'])} |" for status, one in sorted(responses.items())]
    for one in responses.values():
        example = one.get("content", {}).get("application/json", {}).get("example")
        if example is not None:
            lines += ["", "```json", json.dumps(example, indent=2, ensure_ascii=False), "```"]
    return lines


def _resolved(one: dict[str, Any], described: dict[str, Any]) -> dict[str, Any]:
    reference = one.get("$ref")
    if reference is None:
        return one
    found: dict[str, Any] = described["components"]["parameters"][reference.rpartition("/")[2]]
    return found


def _type(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(one) for one in schema["anyOf"]))
    if reference := schema.get("$ref"):
        return f"`{reference.rpartition('/')[2]}`"
    if schema.get("type") == "array":
        return f"array of {_type(schema.get('items', {}))}"
    return str(schema.get("type", "any"))


# --- tables -----------------------------------------------------------------------------------------------------------


def _tables() -> str:
    """The tables of a log that was just made, as SQLite describes them."""
    import penstock

    lines = [
        "# Tables and indexes",
        "",
        "The columns and indexes of every table, as the migrations make them in SQLite. PostgreSQL has the same in the",
        "schema `penstock`, with [its own types](../sql.md). [SQL](../sql.md) says what each column means.",
    ]
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory) / "log.db"
        penstock.open(f"sqlite:///{place}").close()
        with sqlite3.connect(place) as log:
            tables = log.execute(
                "select name from sqlite_master where type = 'table' and name like 'penstock%' order by name"
            ).fetchall()
            for (table,) in tables:
                lines += _table(log, table)
        log.close()
    return "\n".join(lines) + "\n"


def _table(log: sqlite3.Connection, table: str) -> list[str]:
    lines = ["", f"## {table}", "", "| column | type | |", "|---|---|---|"]
    for _, name, kind, required, default, key in log.execute("select * from pragma_table_info(?)", (table,)):
        notes = ["primary key"] if key else []
        notes += ["not null"] if required and not key else []
        notes += [f"default `{default}`"] if default is not None else []
        lines.append(f"| `{name}` | {kind.lower()} | {', '.join(notes)} |")
    indexes = log.execute(
        "select name, sql from sqlite_master where type = 'index' and tbl_name = ? and sql is not null order by name",
        (table,),
    ).fetchall()
    if indexes:
        lines += ["", "```sql", *(" ".join(sql.split()) + ";" for _, sql in indexes), "```"]
    return lines
