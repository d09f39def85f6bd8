"""An app in a file, run by `penstock run` on Spark."""

from __future__ import annotations

from pathlib import Path

import penstock as library
from tests.support.done_table import create_done_table
from tests.support.running import Running, penstock

APP = """
import os, time
import penstock

app = penstock.App(None, name="shop")

at_once = penstock.Retry(max_attempts=2, base_seconds=0)

@app.subscribe("orders", group="slow", retry=at_once, lease_seconds=2, batch_seconds=0.5)
def slow(event, ctx):
    order = event.json()
    ctx.state["seen"] = ctx.state.get("seen", 0) + 1
    ctx.execute("insert into done (n, name) values (?, ?)", (event.offset, event.ordering_key))
    time.sleep(order.get("seconds", 0))
    if order.get("bad"):
        raise ValueError("no country")
"""


class SparkShop:
    """The directory of the app, and the URL of its log."""

    def __init__(self, directory: Path, url: str, max_attempts: int = 2) -> None:
        self.directory, self.url = directory, url
        (directory / "shop.py").write_text(APP.replace("max_attempts=2", f"max_attempts={max_attempts}"))
        create_done_table(url)

    def append(self, count: int, **payload: object) -> None:
        with library.open(self.url) as log:
            log.append_many(
                "orders", [{"payload": payload, "type": "t", "ordering_key": f"k{n % 7}"} for n in range(count)]
            )

    def run(self, *arguments: object, master: str = "local[2]", **more: object) -> Running:
        return penstock(self.directory, "run", "shop.py", *arguments, "--url", self.url, "--master", master, **more)
