"""Draws the diagrams of the explanation pages: `python tools/draw_diagrams.py` writes them to docs/images.

They follow the reader's colour scheme, need no font but the system's, and have a title and a description.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

TARGET = Path(__file__).parents[1] / "docs" / "images"

_STYLE = """\
    .ink { fill: #1f2937 } .soft { fill: #6b7280 }
    .line { stroke: #4b5563; stroke-width: 1.6; fill: none } .tip { fill: #4b5563 }
    .box { fill: #f3f4f6; stroke: #9ca3af } .done { fill: #bbf7d0; stroke: #16a34a }
    .open { fill: #bae6fd; stroke: #0284c7 } .none { fill: none; stroke: #9ca3af }
    .wait { fill: #fef9c3; stroke: #ca8a04 } .dead { fill: #fecaca; stroke: #dc2626 }
    .mark { stroke: #7c3aed; stroke-width: 2; stroke-dasharray: 6 4; fill: none } .marktext { fill: #7c3aed }
    @media (prefers-color-scheme: dark) {
      .ink { fill: #e5e7eb } .soft { fill: #9ca3af } .line { stroke: #9ca3af } .tip { fill: #9ca3af }
      .box { fill: #1f2937; stroke: #6b7280 } .done { fill: #14532d; stroke: #22c55e }
      .open { fill: #0c4a6e; stroke: #38bdf8 }
      .wait { fill: #422006; stroke: #eab308 } .dead { fill: #7f1d1d; stroke: #f87171 } .none { stroke: #6b7280 }
      .mark { stroke: #a78bfa } .marktext { fill: #a78bfa }
    }
"""
_TIP = (
    '<marker id="a" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto-start-reverse">'
    '<path class="tip" d="M0 0 10 5 0 10z"/></marker>'
)


class Drawing:
    """An SVG that is put together from boxes, words and arrows."""

    def __init__(self, height: int, title: str, description: str) -> None:
        self._head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 880 {height}" role="img" aria-labelledby="t d" '
            'font-family="ui-sans-serif, system-ui, \'Segoe UI\', Helvetica, Arial, sans-serif" font-size="14">\n'
            f'  <title id="t">{title}</title>\n  <desc id="d">{description}</desc>\n'
            f"  <style>\n{_STYLE}  </style>\n  <defs>{_TIP}</defs>\n"
        )
        self._parts: list[str] = []

    def box(self, x: int, y: int, width: int, height: int, kind: str, *words: str, dashed: bool = False) -> None:
        """A rounded box with its words in the middle; the lines after the first are small."""
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(
            f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="7" stroke-width="1.5"{dash}/>'
        )
        top = y + height / 2 + 5 - 8 * (len(words) - 1)
        for number, word in enumerate(words):
            size = 14 if number == 0 else 12
            self.text(x + width / 2, top + 16 * number, word, kind="ink" if number == 0 else "soft", size=size)

    def text(
        self, x: float, y: float, words: str, *, kind: str = "ink", size: int = 14, anchor: str = "middle"
    ) -> None:
        weight = ' font-weight="600"' if kind == "ink" and anchor == "start" else ""
        self._parts.append(
            f'<text class="{kind}" x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}"{weight}>{words}</text>'
        )

    def arrow(self, path: str, words: str = "", at: tuple[float, float] = (0, 0)) -> None:
        self._parts.append(f'<path class="line" marker-end="url(#a)" d="{path}"/>')
        if words:
            self.text(*at, words, kind="soft", size=12)

    def mark(self, path: str) -> None:
        self._parts.append(f'<path class="mark" d="{path}"/>')

    def __str__(self) -> str:
        return self._head + "".join(f"  {part}\n" for part in self._parts) + "</svg>\n"


def horizon() -> Drawing:
    drawing = Drawing(
        250,
        "The horizon",
        "Offsets 1 to 4 are committed. Transaction A took offset 5 and is open; it announced the bound 4. Offsets 6 "
        "and 7 are committed. The horizon is 4: readers stop there, although 6 and 7 can be seen.",
    )
    drawing.text(10, 112, "the log", anchor="start")
    kinds = ["done"] * 4 + ["wait", "box", "box"]
    for number, kind in enumerate(kinds, start=1):
        drawing.box(110 + 86 * (number - 1), 84, 78, 46, kind, str(number), dashed=number == 5)
    drawing.text(110 + 86 * 4 + 39, 152, "open", kind="soft", size=12)
    drawing.text(110 + 86 * 5 + 39, 152, "committed", kind="soft", size=12)
    drawing.text(110 + 86 * 6 + 39, 152, "committed", kind="soft", size=12)
    drawing.mark("M450 30v170")
    drawing.text(440, 40, "horizon 4", kind="marktext", anchor="end")
    drawing.text(440, 58, "claims and reads stop here", kind="soft", size=12, anchor="end")
    drawing.text(462, 40, "transaction A announced the bound 4,", kind="soft", size=12, anchor="start")
    drawing.text(462, 57, "then took offset 5, and has not ended", kind="soft", size=12, anchor="start")
    drawing.box(110, 184, 336, 44, "done", "delivered", "nothing can still appear below the horizon")
    drawing.box(462, 184, 290, 44, "none", "waits", "6 and 7 too, until A commits or rolls back", dashed=True)
    return drawing


def lanes() -> Drawing:
    drawing = Drawing(
        300,
        "Lanes of an ordered group",
        "Three of eight lanes. Each has its own cursor and at most one open lease. In lane 1 the head of the key c-42 "
        "failed and waits for its retry; later events of c-42 are blocked behind it, other keys go on.",
    )
    for number, label in enumerate(("lane 0", "lane 1", "lane 2")):
        y = (40, 124, 226)[number]
        drawing.text(10, y + 19, label, anchor="start")
        drawing.text(10, y + 36, f"buckets {32 * number}–{32 * number + 31}", kind="soft", size=12, anchor="start")
    drawing.box(120, 40, 260, 44, "done", "settled")
    drawing.box(384, 40, 170, 44, "open", "open lease", "worker w-7")
    drawing.box(558, 40, 300, 44, "none", "PENDING", dashed=True)
    drawing.box(120, 124, 150, 44, "done", "settled")
    drawing.box(274, 124, 74, 44, "wait", "c-42", "retries")
    drawing.box(352, 124, 110, 44, "done", "settled", "other keys")
    drawing.box(466, 124, 74, 44, "wait", "c-42", "blocked")
    drawing.box(544, 124, 120, 44, "open", "open lease", "worker w-2")
    drawing.box(668, 124, 190, 44, "none", "PENDING", dashed=True)
    drawing.arrow("M311 172q100 34 186 2", "the head of a key holds back its own key only", (404, 206))
    drawing.box(120, 226, 430, 44, "done", "settled")
    drawing.box(554, 226, 304, 44, "none", "PENDING: no worker is free", dashed=True)
    drawing.text(120, 26, "offset →", kind="soft", size=12, anchor="start")
    return drawing


def suspects() -> Drawing:
    drawing = Drawing(
        300,
        "How the event that kills its process is found",
        "A lease of 10,000 events expires and is cut into 16 pieces of 625. The piece with the killer expires again "
        "and is cut into pieces of 40, then 3, then 1. All other pieces succeed. The single event gets the failure.",
    )
    sizes = ("10,000", "625", "40", "3", "1")
    for number, size in enumerate(sizes):
        y = 16 + 56 * number
        if number == 0:
            drawing.box(150, y, 640, 36, "dead", f"{size} events", dashed=True)
        else:
            width = 640 // 16
            for piece in range(16 if number < 3 else 3 if number == 4 else 14):
                kind = "dead" if piece == 5 - number else "done"
                drawing.box(150 + width * piece + 2, y, width - 4, 36, kind, *(size,) if width > 30 else ())
        drawing.text(10, y + 16, f"death {number + 1}" if number < 4 else "alone", anchor="start")
        about = ("the lease expires", "16 pieces", "16 pieces", "14 pieces", "gets the failure")[number]
        drawing.text(10, y + 32, about, kind="soft", size=12, anchor="start")
    drawing.text(290, 262, "every other piece is done on the way", kind="soft", size=12, anchor="start")
    return drawing


def settle() -> Drawing:
    drawing = Drawing(
        270,
        "A settle is one transaction",
        "The settle checks the lease and its token, writes keyed state, runs the user's SQL, writes rows for failures, "
        "returns the unfinished end as a range, appends emitted events, and ends the lease: all or nothing.",
    )
    drawing.box(10, 96, 130, 60, "open", "handler", "outcomes, effects")
    drawing.arrow("M140 126h38")
    drawing.box(180, 20, 540, 220, "none", dashed=True)
    drawing.text(196, 42, "one transaction", kind="marktext", size=12, anchor="start")
    steps = (
        ("box", "lease and token", "stale: lease_lost"),
        ("box", "keyed state", "versions compared"),
        ("box", "your SQL", "ctx.execute"),
        ("wait", "rows", "retry, DEAD, released"),
        ("box", "emitted events", "ctx.emit"),
        ("done", "outcome", "the rest is PUBLISHED"),
    )
    for number, (kind, *words) in enumerate(steps):
        x, y = 196 + 174 * (number % 3), 58 + 92 * (number // 3)
        drawing.box(x, y, 160, 64, kind, *words)
        if number in (0, 1, 3, 4):
            drawing.arrow(f"M{x + 160} {y + 32}h12")
    drawing.arrow("M624 122v10H276v16")
    drawing.arrow("M720 126h38")
    drawing.box(760, 96, 110, 60, "done", "commit", "all or nothing")
    return drawing


def processes() -> Drawing:
    drawing = Drawing(
        330,
        "What runs where",
        "Producers append in their own transactions. The log is in the database. Processes that run your code claim "
        "and settle: penstock run, penstock worker, penstock ingest, and penstock serve for HTTP clients. Publishers "
        "send to other systems.",
    )
    drawing.text(90, 24, "your applications", kind="soft", size=12)
    drawing.box(10, 40, 160, 50, "box", "shop", "append in its transaction")
    drawing.box(10, 110, 160, 50, "box", "any language", "select penstock.append")
    drawing.box(10, 180, 160, 50, "box", "HTTP clients", "workers, dashboard")
    drawing.text(400, 24, "your database", kind="soft", size=12)
    drawing.box(310, 40, 180, 240, "done")
    drawing.box(326, 56, 148, 44, "box", "your tables")
    drawing.box(326, 112, 148, 60, "wait", "the log", "events")
    drawing.box(326, 184, 148, 80, "open", "groups", "leases, exceptions,", "state, audit")
    drawing.text(700, 24, "your code, in as many processes as you like", kind="soft", size=12)
    for number, (name, about) in enumerate(
        (
            ("penstock run", "handlers, pipelines"),
            ("penstock worker", "jobs, schedules"),
            ("penstock ingest", "sources"),
        )
    ):
        drawing.box(600, 40 + 70 * number, 160, 50, "open", name, about)
        drawing.arrow(f"M600 {65 + 70 * number}H492")
    drawing.box(310, 292, 180, 32, "open", "penstock serve")
    drawing.arrow("M400 292v-12")
    drawing.arrow("M90 230v78h218")
    drawing.arrow("M170 65h138")
    drawing.arrow("M170 135h138")
    drawing.box(600, 250, 160, 50, "none", "Kafka, NATS, Valkey", "webhooks, files", dashed=True)
    drawing.arrow("M760 65h54v210h-52", "publish", (844, 170))
    return drawing


DRAWINGS: dict[str, Callable[[], Drawing]] = {
    "horizon.svg": horizon,
    "lanes.svg": lanes,
    "suspects.svg": suspects,
    "settle.svg": settle,
    "processes.svg": processes,
}


def main() -> int:
    for name, draw in DRAWINGS.items():
        (TARGET / name).write_text(str(draw()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
