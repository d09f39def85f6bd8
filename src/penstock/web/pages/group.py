"""A group: numbers over time, lanes, leases, keys that are held back, its policy and what was done to it."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from penstock.core.access import READ
from penstock.core.group import Group
from penstock.errors import InvalidInput, PlanOutdated, UnknownGroup
from penstock.log import standing
from penstock.log.audit_pages import page_of
from penstock.log.operations.operation import Operation
from penstock.log.operations.plan import Plan as OperationPlan
from penstock.log.reader_claims import CLAIMED_BY
from penstock.web.actions import Action, Ask, Done, Field, Plan
from penstock.web.numbers import of_group
from penstock.web.page import Model, Page, Panel, by_id
from penstock.web.view import View

_ACTIONS_SHOWN: Final = 10


def build(view: View) -> Model:
    """Read everything about one group."""
    stream, name = view.name("stream"), view.name("group")
    view.require(READ, stream)
    log = view.log
    found = log.survey_of(stream, name)
    group = next((one for one in log.groups(stream) if one.group_name == name), None)
    if group is None or not found.stats.groups:
        raise UnknownGroup(f"There is no group {name!r} on the stream {stream!r}.")
    series = log.series(stream, name, since=view.since(found.now))
    stats = found.stats.groups[0]
    leases = log.open_leases(stream, name)
    return {
        "title": f"{stream}/{name}",
        "stream": stream,
        "group": name,
        "stats": stats,
        "it": group,
        "claimed_ever": found.claimed.get((stream, name)) is not None,
        "retrying": found.retrying.get((stream, name), 0),
        "problems": [one for one in found.problems if one.group == name],
        "charts": of_group(series),
        "lanes": log.lanes(stream, name),
        "leases": leases,
        "lease_of": {one.lane: one for one in reversed(leases)},
        "keys": log.blocked_keys(stream, name),
        "bindings": log.bindings(stream, name),
        "audit": log.audit(stream=stream, group=name, limit=_ACTIONS_SHOWN),
        "reader": CLAIMED_BY,
        "asked_at": found.now,
        "panels": _panels(view, group, series.since, series.until, series.step_seconds),
    }


def _panels(view: View, group: Group, since: datetime, until: datetime, step: int) -> object:
    stream, name, number = group.stream, group.group_name, group.group_id
    base = f"/v1/streams/{stream}/groups/{name}"
    times = {"since": since.isoformat(), "until": until.isoformat(), "step_seconds": step}
    numbers = view.sql("panel.numbers", group_id=number, since=since, until=until, step=step)
    actions = view.sql("audit.page", **page_of(stream, name, None, _ACTIONS_SHOWN))
    return by_id(
        Panel("numbers", f"Last {view.window}", numbers, view.curl(f"{base}/series", **times)),
        Panel("lanes", "Lanes", view.sql("standing.lanes", **standing.lanes_of(group)), view.curl(f"{base}/lanes")),
        Panel(
            "leases",
            "Open leases",
            view.sql("standing.leases", **standing.leases_of(group)),
            view.curl(f"{base}/leases"),
        ),
        Panel(
            "keys",
            "Keys held back",
            view.sql("standing.blocked", **standing.blocked_of(group)),
            view.curl(f"{base}/blocked"),
        ),
        Panel(
            "policy",
            "Policy",
            view.sql("panel.policy", group_id=number),
            view.curl(f"/v1/streams/{stream}/groups"),
        ),
        Panel(
            "bindings",
            "What it wants",
            view.sql("standing.bindings", **standing.bindings_of(group)),
            view.curl(f"{base}/bindings"),
        ),
        Panel(
            "audit",
            "Done by people",
            actions,
            view.curl("/v1/audit", stream=stream, group=name, limit=_ACTIONS_SHOWN),
        ),
    )


def _target(ask: Ask) -> str | int | datetime:
    sent = ask.text("to")
    if sent in ("beginning", "end"):
        return sent
    digits = sent.removeprefix("#").replace(",", "")
    if digits.isascii() and digits.isdecimal() and len(digits) < 19:
        return int(digits)
    try:
        return datetime.fromisoformat(sent)
    except ValueError as error:
        raise InvalidInput('Where to: "beginning", an offset, or a time such as 2026-07-01T12:00Z.') from error


def _operation(ask: Ask) -> Operation:
    to, state = _target(ask), ask.text("state")
    return ask.view.log.operation("rewind", ask.stream, ask.group, to=to, state=state, reason=ask.reason, by=ask.by)


def _plan_rewind(ask: Ask) -> Plan:
    found = _operation(ask).plan()
    state = "is forgotten" if ask.text("state") == "reset" else "is kept"
    lines = ("Open leases end; what they hold is done again.", f"State by key {state}. Other groups are not affected.")
    sentence = f"{found.count:,} deliveries above {ask.text('to')} are done again."
    proof = f"{found.count}@{found.cutoff}@{found.target}@{found.planned_at.isoformat()}"
    return Plan(sentence, found.count, found.planned_at, lines, warn=True, proof=proof)


def _rewind(ask: Ask) -> Done:
    """Start the operation that was shown."""
    try:
        count, cutoff, target, at = ask.text("proof").split("@")
        shown = OperationPlan(int(cutoff), int(count), datetime.fromisoformat(at), target=int(target))
    except ValueError as error:
        raise InvalidInput("Look at the plan first: a start names what was shown.") from error
    try:
        number = _operation(ask).start(shown).id
    except PlanOutdated as error:
        raise InvalidInput(f"{error.message} Here is the plan as it is now: look at it, and start again.") from error
    return Done(shown.count, ("/ops", str(number)))


def _plan_skip(ask: Ask) -> Plan:
    found = ask.view.log.skip(ask.stream, ask.group, ask.text("key"), dry_run=True, by=ask.by)
    if not found.count:
        return Plan("No dead letter holds this key back.", possible=False)
    lines = ("They stay DEAD and may be redriven later.", "Deliveries behind them go on: their order is broken.")
    return Plan(f"The key goes on past {found.count:,} dead letters.", found.count, lines=lines, warn=True)


def _skip(ask: Ask) -> Done:
    done = ask.view.log.skip(ask.stream, ask.group, ask.text("key"), reason=ask.reason, by=ask.by)
    return Done(done.count)


def _plan_release(ask: Ask) -> Plan:
    found = ask.view.log.release_reader(ask.stream, ask.group, ask.text("reader"), dry_run=True, by=ask.by)
    lines = ("If its query still runs, it fails with ClaimLost.",)
    return Plan(f"{found.count:,} events that the reader holds are due again.", found.count, lines=lines, warn=True)


def _release(ask: Ask) -> Done:
    reader = ask.text("reader")
    done = ask.view.log.release_reader(ask.stream, ask.group, reader, reason=ask.reason, by=ask.by)
    return Done(done.count)


_STATES = (("keep", "keep it"), ("reset", "forget it"))
PAGES = (Page("/s/{stream}/g/{group}", "group.html", build, topics=("events", "leases", "audit"), nav="overview"),)
ACTIONS = (
    Action(
        "rewind",
        "Rewind a group",
        "Rewind",
        "{n} deliveries are done again: the operation is stored, and runs.",
        _plan_rewind,
        _rewind,
        danger=True,
        fields=(
            Field("to", "To", required=True, hint="beginning, an offset, or a time such as 2026-07-01T12:00Z"),
            Field("state", "State by key", "select", value="keep", options=_STATES),
        ),
    ),
    Action(
        "skip",
        "Skip a key",
        "Skip",
        "The key goes on past {n} dead letters.",
        _plan_skip,
        _skip,
        fields=(Field("key", "Key", required=True),),
    ),
    Action(
        "release",
        "Release a reader",
        "Release",
        "{n} events are due again.",
        _plan_release,
        _release,
        danger=True,
        fields=(Field("reader", "Reader", required=True),),
    ),
)
