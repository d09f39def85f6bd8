"""The overview: what is wrong first, then every group."""

from __future__ import annotations

from penstock.web.actions import Action
from penstock.web.page import Model, Page, Panel, by_id
from penstock.web.view import View


def build(view: View) -> Model:
    """Read problems and groups."""
    found = view.log.stats()
    panels = by_id(Panel("groups", "Groups", sql=None, curl=view.curl("/v1/stats")))
    return {"title": "Overview", "groups": [one for one in found.groups if view.reads(one.stream)], "panels": panels}


PAGES = (Page("/", "overview.html", build, topics=("events", "leases", "audit", "runs"), nav="overview"),)
ACTIONS: tuple[Action, ...] = ()
