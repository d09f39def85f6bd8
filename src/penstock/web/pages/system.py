"""The system: the doctor, the horizon, sizes, runs, the audit, tokens."""

from __future__ import annotations

import threading
import time
from datetime import datetime
from typing import Final
from weakref import WeakKeyDictionary

from penstock.core.access import ADMIN, READ, texts_of
from penstock.core.finding import Finding, Level
from penstock.log.audit_pages import page_of
from penstock.log.log import Log
from penstock.web.actions import Action, Ask, Done, Plan
from penstock.web.page import Model, Page, Panel, by_id
from penstock.web.view import View

_ENTRIES: Final = 30
_DOCTOR_SECONDS: Final = 30.0


def build(view: View) -> Model:
    """Read what concerns the log as a whole; whoever may see only some streams sees their part of the audit."""
    log, whole = view.log, view.may(READ)
    before = view.whole("before") or None
    entries = log.audit(before=before, limit=_ENTRIES)
    findings, examined = _FINDINGS.of(log, again=bool(view.text("again"))) if whole else ([], None)
    tokens = log.tokens() if view.administers else []
    order = {Level.PROBLEM: 0, Level.NOTE: 1, Level.OK: 2}
    return {
        "title": "System",
        "whole": whole,
        "findings": sorted(findings, key=lambda one: order[one.level]),
        "examined": examined,
        "wrong": sum(one.level is not Level.OK for one in findings),
        "horizon": log.horizon() if whole else None,
        "sizes": log.sizes() if whole else [],
        "runs": log.runs() if whole else [],
        "entries": [one for one in entries if view.may(READ, one.stream)],
        "older": entries[-1].id if len(entries) == _ENTRIES else None,
        "first": before is None,
        "tokens": [(one, ", ".join(texts_of(one.grants))) for one in tokens],
        "asked_at": log.clock(),
        "panels": by_id(
            Panel("doctor", "Doctor", None, view.curl("/v1/doctor")),
            Panel("horizon", "Horizon", view.sql("doctor.holders"), view.curl("/v1/horizon")),
            Panel("sizes", "Room", view.sql("sizes.tables"), view.curl("/v1/sizes")),
            Panel("runs", "Runs", view.sql("panel.runs"), view.curl("/v1/runs")),
            Panel(
                "audit",
                "Audit",
                view.sql("audit.page", **page_of(None, None, before, _ENTRIES)),
                view.curl("/v1/audit", cursor=before, limit=_ENTRIES),
            ),
            Panel("tokens", "Tokens", view.sql("panel.tokens"), view.curl("/v1/tokens")),
        ),
    }


class _Findings:
    """What the doctor found last: it looks at more than a page may, and so at most twice a minute."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: WeakKeyDictionary[Log, tuple[float, datetime, list[Finding]]] = WeakKeyDictionary()

    def of(self, log: Log, *, again: bool) -> tuple[list[Finding], datetime]:
        with self._lock:
            made, at, found = self._known.get(log, (0.0, None, []))
            if at is None or again or time.monotonic() > made + _DOCTOR_SECONDS:
                found, at = log.examine(), log.clock()
                self._known[log] = (time.monotonic(), at, found)
            return found, at


_FINDINGS = _Findings()


def _plan_repair(ask: Ask) -> Plan:
    groups = ask.view.log.stats().groups
    held = sum(one.open_leases for one in groups)
    lines = (
        "For a log that was restored or failed over: sequences are raised above what is stored.",
        "Stop the workers first: their leases end, and their work is done again.",
    )
    return Plan(f"{held:,} open leases end.", held, ask.view.log.clock(), lines, warn=True)


def _repair(ask: Ask) -> Done:
    return Done(ask.view.log.repair(by=ask.by).leases)


PAGES = (Page("/system", "system.html", build, topics=("audit", "runs"), nav="system"),)
ACTIONS = (
    Action(
        "repair",
        "Repair the log",
        "Repair",
        "The log is repaired; {n} open leases ended.",
        _plan_repair,
        _repair,
        scope=ADMIN,
        of="log",
        danger=True,
    ),
)
