"""An app whose handler fails at random. The environment names the log, the seed and the notes."""

from __future__ import annotations

import faulthandler
import os
import random
import signal

import penstock
from penstock import App, Context, Event
from tests.support.children.handlers import act
from tests.support.notes import write_note

SEED = os.environ.get("PENSTOCK_SEED", "0")
ACTS = ["raise", "raise", "permanent", "later", "exit", "kill", "segfault", "hang"]

_how = random.Random(SEED)
app = App(os.environ.get("PENSTOCK_CHAOS", "sqlite:///chaos.db"), name="chaos")


@app.subscribe(
    "orders",
    group="g",
    ordering=_how.choice(["key", "key", None]),
    concurrency=_how.choice([1, 8]),
    lanes=_how.choice([1, 2, 8]),
    batch_size=_how.choice([3, 20, 50_000]),
    batch_seconds=_how.choice([0.1, 2]),
    lease_seconds=2,
    timeout_seconds=1,
    retry=penstock.Retry(max_attempts=6, base_seconds=0.02, cap_seconds=0.2),
)
def handle(event: Event, ctx: Context) -> None:
    """One of every effect, then whatever the seed says about this attempt."""
    write_note(f"{event.offset} {event.total_attempts}")
    dice = random.Random(f"{SEED} {event.offset} {event.total_attempts}")
    ctx.state["seen"] = [*ctx.state.get("seen", []), event.offset]
    ctx.emit("seen", {"offset": event.offset}, type="event.seen")
    ctx.execute("insert into done (n, name) values (?, ?)", (event.offset, event.ordering_key))
    act(dice.choice(ACTS) if event.total_attempts < 4 and dice.random() < 0.06 else None)


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1)  # says what it is waiting for: see `Engines.disturb`
    app.run(engine="local")
