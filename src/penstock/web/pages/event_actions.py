"""What can be done to one event in one group: redrive, replay, reschedule, kill, mend and send again."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta

from penstock.core.access import APPEND, PAYLOAD
from penstock.core.delivery import State
from penstock.core.event import parse_event_id
from penstock.errors import InvalidInput
from penstock.log.deliveries import DeliveryRecord
from penstock.web.actions import Action, Ask, Done, Field, Plan
from penstock.web.view import moment_of
from penstock.web.words import short, span

_LONGEST = 256 * 1024  # of a payload that is mended in a form


def _id(ask: Ask) -> uuid.UUID:
    return parse_event_id(ask.text("event_id"))


def _delivery(ask: Ask) -> DeliveryRecord:
    return ask.view.log.delivery(ask.stream, ask.group, _id(ask))


def _named(one: DeliveryRecord) -> str:
    key = "" if one.ordering_key is None else f", key {short(one.ordering_key, 60)}"
    return f"#{one.offset:,} {one.event_type}{key}"


def _only(one: DeliveryRecord, state: State, verb: str) -> Plan | None:
    """Return the plan that says why nothing can be done; None if it can."""
    if one.state is state:
        return None
    if one.state is State.CLAIMED:
        return Plan(f"It is CLAIMED by {one.claimed_by}: wait until that has ended.", possible=False)
    return Plan(f"It is {one.state}, and only what is {state} can be {verb}.", possible=False)


def _plan_redrive(ask: Ask) -> Plan:
    one = _delivery(ask)
    lines = (f"It died of: {short(one.last_error or one.error_code or 'an unknown error', 200)}", _named(one))
    return _only(one, State.DEAD, "redriven") or Plan(
        "One dead letter goes back to PENDING, with a fresh budget of attempts.", 1, lines=lines
    )


def _redrive(ask: Ask) -> Done:
    moved = ask.view.log.redrive(ask.stream, ask.group, event_ids=[_id(ask)], by=ask.by, reason=ask.reason)
    return _one(moved.count)


def _plan_replay(ask: Ask) -> Plan:
    one = _delivery(ask)
    lines = (_named(one), "Its effects may happen a second time: handlers see ctx.idempotency_key with a new number.")
    return _only(one, State.PUBLISHED, "replayed") or Plan("A finished event is delivered again.", 1, lines=lines)


def _replay(ask: Ask) -> Done:
    moved = ask.view.log.replay(ask.stream, ask.group, event_ids=[_id(ask)], by=ask.by, reason=ask.reason)
    return _one(moved.count)


def _due(ask: Ask) -> datetime:
    """Read when: a time, or how long from now, such as 10m."""
    said = ask.text("at")
    units = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
    number = said[:-1]
    if said[-1:] in units and number.isascii() and number.isdecimal() and len(number) < 7:
        return datetime.now(UTC) + timedelta(seconds=int(number) * units[said[-1]])
    found = moment_of(said, "When")
    if found is None:
        raise InvalidInput("Say when: a time such as 2026-07-01T12:00Z, or 10m for ten minutes from now.")
    return found


def _plan_reschedule(ask: Ask) -> Plan:
    one, due = _delivery(ask), _due(ask)
    wait = (due - datetime.now(UTC)).total_seconds()
    when = f"in {span(wait)}" if wait > 0 else "at once"
    return _only(one, State.PENDING, "rescheduled") or Plan(
        f"It becomes due at {due.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC, {when}.", 1, lines=(_named(one),)
    )


def _reschedule(ask: Ask) -> Done:
    moved = ask.view.log.reschedule(
        ask.stream, ask.group, event_ids=[_id(ask)], available_at=_due(ask), by=ask.by, reason=ask.reason
    )
    return _one(moved.count)


def _plan_kill(ask: Ask) -> Plan:
    one = _delivery(ask)
    lines = (_named(one), "A redrive brings it back.")
    return _only(one, State.PENDING, "killed") or Plan("It is given up: DEAD, without another attempt.", 1, lines=lines)


def _kill(ask: Ask) -> Done:
    moved = ask.view.log.kill(ask.stream, ask.group, event_ids=[_id(ask)], reason=ask.reason or "killed", by=ask.by)
    return _one(moved.count)


# --- mend -------------------------------------------------------------------------------------------------------------


def _check_mender(ask: Ask) -> None:
    """Who mends sees the payload and appends."""
    ask.view.require(PAYLOAD, ask.stream)
    ask.view.require(APPEND, ask.stream)


def _stored(ask: Ask) -> dict[str, str]:
    _check_mender(ask)
    payload = _delivery(ask).payload
    try:
        return {"payload": payload.decode("utf-8")} if len(payload) <= _LONGEST else {}
    except UnicodeDecodeError:
        return {}


def _plan_mend(ask: Ask) -> Plan:
    _check_mender(ask)
    one = _delivery(ask)
    refused = _only(one, State.DEAD, "mended")
    if refused is not None:
        return refused
    given = ask.values.get("payload", "").encode()
    if given == one.payload:
        return Plan("Change the payload: this is the one that failed.", possible=False)
    _check_json(given, one.content_type)
    size = f"{len(given):,} bytes instead of {len(one.payload):,}"
    lines = (
        size,
        "It has the type, key and headers of the old one, names it, and goes to the end of its key.",
        "Other groups of the stream do not get it; the dead letter stays DEAD, marked as mended.",
    )
    return Plan("A new event with this payload takes the place of the dead letter.", 1, lines=lines)


def _check_json(given: bytes, content_type: str) -> None:
    if "json" in content_type:
        try:
            json.loads(given)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"The payload is not JSON: {short(error, 120)}.") from error


def _mend(ask: Ask) -> Done:
    _check_mender(ask)
    given = ask.values.get("payload", "").encode()
    appended = ask.view.log.mend(ask.stream, ask.group, _id(ask), given, reason=ask.reason, by=ask.by)
    return Done(to=("/e", str(appended.event_id)))


def _one(count: int) -> Done:
    if not count:
        raise InvalidInput("Somebody was faster: it is not as it was when you looked.")
    return Done(count)


_PAYLOAD = Field("payload", "Payload", "area", required=True, hint="as text, stored exactly like this")
_WHEN = Field("at", "When", required=True, hint="a time such as 2026-07-01T12:00Z, or 10m, 2h, 1d from now")
ACTIONS = (
    Action("redrive-event", "Redrive a dead letter", "Redrive", "It is PENDING again.", _plan_redrive, _redrive),
    Action("replay-event", "Replay an event", "Replay", "It is delivered again.", _plan_replay, _replay),
    Action(
        *("reschedule-event", "Reschedule a delivery", "Reschedule", "It is due at another time."),
        *(_plan_reschedule, _reschedule),
        fields=(_WHEN,),
    ),
    Action("kill-event", "Kill a delivery", "Kill", "It is DEAD.", _plan_kill, _kill, danger=True),
    Action(
        *("mend-event", "Mend and send again", "Append", "This event takes the place of the dead letter."),
        *(_plan_mend, _mend),
        fields=(_PAYLOAD,),
        fill=_stored,
    ),
)
