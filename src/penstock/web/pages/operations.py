"""Operations: those that run, past runs, and one of them in full."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from penstock.core.operation import STATES, Kind
from penstock.errors import InvalidInput, OperationEnded, UnknownOperation
from penstock.log.operations.operation import Operation
from penstock.web.actions import Action, Ask, Done, Plan
from penstock.web.page import Model, Page, Panel, by_id
from penstock.web.view import View

_LIMIT: Final = 30
_BACK: Final = 20  # of what came back
_LARGEST: Final = 2**63 - 1


def listed(view: View) -> Model:
    """Read operations, the newest first."""
    state, before = view.text("state") or None, view.whole("before") or None
    found = view.log.operations(state=state, before=before, limit=_LIMIT)
    params = {"stream": None, "group_name": None, "state": state, "before": before, "limit": _LIMIT}
    return {
        "title": "Operations",
        "found": [one for one in found if view.reads(one.stream)],
        "states": [*STATES],
        "state": state,
        "more": found[-1].id if len(found) == _LIMIT else None,
        "read_at": datetime.now(UTC),
        "panels": by_id(
            Panel("ops", "Operations", view.sql("operation.page", **params), view.curl("/v1/operations", state=state))
        ),
    }


def _number(sent: str) -> int:
    if not (sent.isascii() and sent.isdecimal()) or len(sent) > 19 or int(sent) > _LARGEST:
        raise UnknownOperation(f"There is no operation {sent[:40]}.")
    return int(sent)


def found(view: View, number: int) -> Operation:
    """Return an operation that may be looked at; for all others it does not exist."""
    operation = view.log.get_operation(number)
    if not view.reads(operation.info.stream):
        raise UnknownOperation(f"There is no operation {number}.")
    return operation


def build(view: View) -> Model:
    """Read one operation and what came back of it."""
    number = _number(view.path["number"])
    one = found(view, number).info
    fingerprint = one.filter.get("fingerprint")
    back = view.log.operation_back(number, limit=_BACK) if one.kind in (Kind.REDRIVE, Kind.REPLAY) else []
    return {
        "title": f"Operation {number}",
        "one": one,
        "filter": _filter(one.filter),
        "kind": None if fingerprint is None else view.log.fingerprint(fingerprint),
        "cutoff_is_time": isinstance(one.cutoff, datetime),
        "back": back,
        "read_at": datetime.now(UTC),
        "panels": by_id(
            Panel(
                "op",
                "What was asked for",
                view.sql("operation.find", id=number),
                view.curl(f"/v1/operations/{number}"),
            ),
            Panel("back", "Came back", view.sql("operation.back", id=number, limit=_BACK)),
        ),
    }


def _filter(given: dict[str, Any]) -> dict[str, str]:
    """Write what an operation was asked for."""
    names = {"event_type": "type", "event_ids": "events"}
    shown = {}
    for name, value in given.items():
        many = value if isinstance(value, list) else [value]
        shown[names.get(name, name)] = ", ".join(map(str, many)) if len(many) <= 3 else f"{len(many):,} named"
    return shown or {"all": "dead letters of the group"}


# --- actions ----------------------------------------------------------------------------------------------------------


def _of(ask: Ask) -> Operation:
    """Return the operation, if it is one of the stream that rights were asked for."""
    number = ask.whole("number")
    if number is None:
        raise InvalidInput("Which operation?")
    operation = ask.view.log.get_operation(number)
    if operation.info.stream != ask.stream:
        raise UnknownOperation(f"There is no operation {number}.")
    return operation


def _plan(ask: Ask) -> Plan:
    one, verb = _of(ask).info, ask.action.name.removesuffix("-operation")
    if one.ended:
        return Plan(f"Operation #{one.id} is {one.state}: nothing can change it any more.", possible=False)
    if (one.state == "paused") == (verb == "pause"):
        return Plan(f"Operation #{one.id} is {one.state}.", possible=verb == "abort")
    said = {
        "pause": "It moves nothing more until it is resumed. What was moved stays moved.",
        "resume": "It goes on where it was; a pause is not made up for.",
        "abort": "It ends for good. What was moved stays moved.",
    }
    return Plan(said[verb], lines=(f"{one.moved:,} of {one.planned:,} are moved.",))


def _change(ask: Ask) -> Done:
    operation, verb = _of(ask), ask.action.name.removesuffix("-operation")
    try:
        {"pause": operation.pause, "resume": operation.resume, "abort": operation.abort}[verb](by=ask.by)
    except OperationEnded as error:
        raise InvalidInput(error.message) from error
    return Done()


def _action(verb: str, done: str) -> Action:
    name, shown, danger = f"{verb}-operation", verb.capitalize(), verb == "abort"
    return Action(name, f"{shown} an operation", shown, done, _plan, _change, reason="none", of="stream", danger=danger)


PAGES = (
    Page("/ops", "operations.html", listed, topics=("operations", "audit"), nav="operations"),
    Page("/ops/{number}", "operation.html", build, topics=("operations", "audit", "leases"), nav="operations"),
)
ACTIONS = (
    _action("pause", "The operation is paused."),
    _action("resume", "The operation goes on."),
    _action("abort", "The operation is aborted."),
)
