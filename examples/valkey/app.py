"""Valkey in and out: clicks come in from one stream, and what a handler makes of them goes out to another."""

import os

from penstock import App
from penstock.connect import Entry, Valkey, ValkeyStream

VALKEY = os.environ.get("VALKEY_URL", "valkey://localhost:6379/0")
app = App(name="clicks")  # the log of $PENSTOCK_URL, else sqlite:///penstock.db


def click(entry: Entry):
    """Make an event of an entry. What raises is rejected: it goes to the stream `clicks.rejected`."""
    page = entry.text("page")
    if page is None:
        raise ValueError("a click has a page")
    return {"type": "click", "payload": {"page": page}, "ordering_key": page}


# Every entry becomes one event of the log; it is acknowledged after the commit.
app.ingest(ValkeyStream(VALKEY, "clicks"), into="clicks", map=click)


@app.subscribe("clicks", group="counting", isolation="inline")
def count(event, ctx):
    seen = ctx.state.get("clicks", 0) + 1  # of this page: state belongs to the ordering key
    ctx.state["clicks"] = seen
    if seen % 10 == 0:
        ctx.emit("milestones", {**event.json(), "clicks": seen}, type="page.popular", ordering_key=event.ordering_key)


# Every milestone becomes one entry of another stream, in the order of its page.
app.publish("milestones", group="to-valkey", publisher=Valkey(VALKEY, stream="milestones"), ordering="key")

if __name__ == "__main__":
    print(app.run(engine="local", until_drained=True).line())
