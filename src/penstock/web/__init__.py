"""The dashboard: pages over the log, for `penstock serve` and for other ASGI applications.

`asgi` makes the application. It has no build step: Jinja2 templates in `templates/`, one stylesheet, htmx and a few
small scripts in `static/`. Nothing inline: the Content-Security-Policy forbids it, in templates, too (no `style=`).

**A page** is a module in `pages/` and a template. The module has a function that reads the log and returns what the
template needs, and names both in `PAGES`:

    def build(view: View) -> Model:
        stream = view.name("stream")                   # of the path, checked
        view.require(READ, stream)                     # else a 403 page
        found = view.log.groups(stream)
        return {"title": stream, "found": found, "panels": [Panel("groups", "Groups", sql=…, curl=…)]}

    PAGES = (Page("/s/{stream}", "stream.html", build, topics=("events", "leases")),)

`site.py` lists the modules. The function runs in a thread; it must only look (`K22`), and its cost must not grow with
the log. The template extends `frame.html` and fills `{% block content %}`. Every address is made by `view.url("/s",
stream)`, which escapes the parts and knows where the application is mounted, or by `view.here(page=2)`: this page with
another query. Filters and the time window (`view.window`) live in the query.

**A panel** is a `Panel` and, in the template, `{% call parts.panel(panels.groups) %}…{% endcall %}`: a headline, its
content, and a disclosure with the SQL and the curl that give the same numbers. The SQL is a block of
`stores/*/sql/*.sql` with its parameters written into it: `view.sql("panel.groups", stream=stream)`; the curl is a
route of the service: `view.curl("/v1/streams/orders/groups")`. Tests run both. A panel with `live=True` is replaced
when one of the page's topics has changed; rows with `data-row="…"` keep their place while somebody points at them.

**An action** is an `Action` in the module's `ACTIONS`: a name, the scope it needs, its fields, `plan` (the dry run:
what would happen, how many, up to which moment) and `run`. `actions.py` and `action.html` are the dialog of all of
them: dry run, cutoff, reason, above 1,000 the typed name of the group, then POST, redirect, GET; the log writes the
audit. In a template: `{{ parts.act(view, "pause", "pause", stream=…, group=…) }}`.

**A chart** is SVG made here, by `charts.py`. Numbers, ages and times are written by the filters in `words.py`.
"""

from penstock.web.live import Live
from penstock.web.login import SignIn
from penstock.web.site import asgi

__all__ = ["Live", "SignIn", "asgi"]
