"""What can be done to dead letters: redrive and purge as operations, and words about a kind of error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from penstock.core.limits import NOTE_BYTES
from penstock.errors import InvalidInput, PlanOutdated
from penstock.log.fingerprints import FingerprintStats
from penstock.log.operations.operation import Operation
from penstock.log.operations.plan import Plan as OperationPlan
from penstock.web.actions import Action, Ask, Done, Field, Plan
from penstock.web.view import moment_of
from penstock.web.words import number, short, span

_MOST_KINDS: Final = 50


def _kinds(ask: Ask) -> list[str | None]:
    """Return the kinds of errors that were chosen; one None for everything that matches."""
    chosen = [one for one in dict.fromkeys(ask.text("fingerprints").split(",")) if one]
    if len(chosen) > _MOST_KINDS:
        raise InvalidInput(f"At most {_MOST_KINDS} kinds of errors are chosen at once.")
    return [*chosen] or [None]


def _operations(kind: str, ask: Ask) -> list[tuple[str, Operation]]:
    """Return an operation for each kind of error, by its name."""
    careful: dict[str, Any] = {"rate_per_second": ask.whole("rate") or None}
    if kind == "redrive":
        careful |= {"canary": ask.whole("canary") or None, "stop_on_return": ask.whole("stop") or None}
    which: dict[str, Any] = {
        "type": ask.text("type") or None,
        "error": ask.text("error") or None,
        "since": moment_of(ask.text("since"), "since"),
    }
    said: dict[str, Any] = {"reason": ask.reason, "by": ask.by}
    found = []
    for one in _kinds(ask):
        asked = {"fingerprint": one, "all": one is None, **which, **careful, **said}
        found.append((one or "all", ask.view.log.operation(kind, ask.stream, ask.group, **asked)))
    return found


def _planned(kind: str, ask: Ask) -> Plan:
    found = [(name, one.plan()) for name, one in _operations(kind, ask)]
    plans = [plan for _, plan in found if plan.count]
    count = sum(plan.count for plan in plans)
    if not plans:
        return Plan("Nothing that is dead matches any more.", 0, possible=False)
    cutoff = max(plan.planned_at for plan in plans)
    verb = "go back to PENDING" if kind == "redrive" else "leave the queue for good"
    letters = "1 dead letter" if count == 1 else f"{count:,} dead letters"
    sentence = f"{letters} {verb}: those that died at or before {cutoff.astimezone(UTC):%H:%M:%S}Z."
    proof = ";".join(f"{name}={plan.count}@{_time(plan)}" for name, plan in found if plan.count)
    return Plan(sentence, count, cutoff, tuple(_lines(kind, plans, ask)), warn=kind == "purge", proof=proof)


def _time(plan: OperationPlan) -> str:
    return plan.planned_at.isoformat()


def _lines(kind: str, plans: Sequence[OperationPlan], ask: Ask) -> list[str]:
    lines = []
    if len(plans) > 1:
        lines.append(f"One operation for each of {len(plans)} kinds of errors; each stops for itself.")
    if kind == "purge":
        lines.append("They stay DEAD, but hidden, and their events may be removed.")
        return [*lines, "Only a redrive by id brings one back."]
    canary, rate, stop = ask.whole("canary"), ask.whole("rate"), ask.whole("stop")
    if canary:
        lines.append(f"First {canary:,} of them as canaries; the rest once each of those has an outcome.")
    if stop:
        lines.append(f"It stops when {stop:,} of them {'is' if stop == 1 else 'are'} DEAD again with the same error.")
    if rate:
        seconds = max(plan.count for plan in plans) / rate
        lines.append(f"At {rate:,} a second: about {span(seconds)}.")
    halted = sum(plan.halted_keys_count for plan in plans)
    lines.append(f"The order of every key is kept{f'; behind halted keys: {halted:,}' if halted else ''}.")
    return lines


def _proof(ask: Ask) -> dict[str, OperationPlan]:
    """Read what was shown: of each kind how many, and up to when."""
    found = {}
    try:
        for part in ask.text("proof").split(";"):
            name, _, rest = part.partition("=")
            count, _, at = rest.partition("@")
            cutoff = datetime.fromisoformat(at)
            found[name] = OperationPlan(cutoff, int(count), cutoff)
    except ValueError as error:
        raise InvalidInput("Look at the plan first: a start names what was shown.") from error
    return found


def _start(kind: str, ask: Ask) -> Done:
    shown, started = _proof(ask), []
    for name, operation in _operations(kind, ask):
        if name not in shown:
            continue
        try:
            started.append(operation.start(shown[name]).id)
        except PlanOutdated as error:
            before = "".join(f" Operation {one} was started." for one in started)
            todo = "Here is the plan as it is now: look at it, and start again."
            raise InvalidInput(f"{error.message} {todo}{before}") from error
    if not started:
        raise InvalidInput("Look at the plan first: a start names what was shown.")
    return Done(to=("/ops", str(started[0])) if len(started) == 1 else ("/ops",))


def _operation(kind: str, title: str, verb: str, fields: tuple[Field, ...]) -> Action:
    hidden = tuple(Field(name, name, "hidden") for name in ("fingerprints", "type", "since", "error"))
    plan: Callable[[Ask], Plan] = lambda ask: _planned(kind, ask)  # noqa: E731  # of this kind
    return Action(
        *(f"{kind}-dead", title, verb, "The operation is stored, and runs.", plan, lambda ask: _start(kind, ask)),
        fields=hidden + fields,
        danger=kind == "purge",
    )


# --- words about a kind -----------------------------------------------------------------------------------------------


def _kind(ask: Ask) -> FingerprintStats:
    wanted = ask.text("fingerprint")
    found = ask.view.log.fingerprints(ask.stream, ask.group, limit=1_000)
    for one in found:
        if (one.fingerprint or "none") == wanted:
            return one
    raise InvalidInput("Nothing dead is of this kind any more.")


def _said(ask: Ask) -> dict[str, str]:
    one = _kind(ask)
    return {"note": one.note or "", "owner": one.owner or ""}


def _plan_note(ask: Ask) -> Plan:
    one = _kind(ask)
    if max(len(ask.text(name).encode()) for name in ("note", "owner")) > NOTE_BYTES:
        return Plan(f"A note has at most {NOTE_BYTES:,} bytes.", possible=False)
    return Plan("Everybody who looks at this kind of error sees it.", lines=(_named(one),))


def _note(ask: Ask) -> Done:
    note, owner = ask.text("note"), ask.text("owner")
    ask.view.log.note_fingerprint(ask.stream, ask.group, ask.text("fingerprint"), note=note, owner=owner, by=ask.by)
    return Done()


def _plan_mute(ask: Ask) -> Plan:
    return Plan("It moves to the end of the list, in grey. Its dead letters stay.", lines=(_named(_kind(ask)),))


def _plan_unmute(ask: Ask) -> Plan:
    return Plan("It stands among the others again.", lines=(_named(_kind(ask)),))


def _mute(ask: Ask) -> Done:
    muted = ask.action.name == "mute-kind"
    ask.view.log.note_fingerprint(ask.stream, ask.group, ask.text("fingerprint"), muted=muted, by=ask.by)
    return Done()


def _named(one: FingerprintStats) -> str:
    return f"{number(one.count, one.capped)} × {one.error_type or one.error_code}: {short(one.message or '', 120)}"


_CAREFUL = (
    Field("canary", "Canaries first", "number", value="20", hint="empty: none"),
    Field("rate", "Then a second", "number", value="50", hint="empty: all at once"),
    Field("stop", "Stop if back", "number", value="1", hint="with the same error"),
)
_WORDS = (Field("note", "Note", hint="such as: fixed in 4.2"), Field("owner", "Owner", hint="who looks after it"))
_RATE = Field("rate", "A second", "number", hint="empty: all at once")
ACTIONS = (
    _operation("redrive", "Redrive dead letters", "Start", _CAREFUL),
    _operation("purge", "Purge dead letters", "Purge", (_RATE,)),
    Action(
        *("note-kind", "Note and owner", "Save", "The note is saved.", _plan_note, _note),
        fields=_WORDS,
        reason="none",
        fill=_said,
    ),
    Action("mute-kind", "Mute a kind of error", "Mute", "It is muted.", _plan_mute, _mute, reason="none"),
    Action("unmute-kind", "Unmute a kind of error", "Unmute", "It is back.", _plan_unmute, _mute, reason="none"),
)
