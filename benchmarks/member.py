"""A second engine process for `benchmarks.engine`: works on one group until its input is closed."""

from __future__ import annotations

import sys
import time

import orjson

import penstock
from benchmarks.engine import subscribed
from penstock.engine.local.engine import LocalEngine


def main() -> None:
    url, handler, stream, group, policy = orjson.loads(sys.argv[1])
    with penstock.open(url) as log:
        engine = LocalEngine(log, [subscribed(handler, stream, group, **policy)])
        engine.start()
        while not engine.idle:
            time.sleep(0.01)
        print("ready", flush=True)
        sys.stdin.read()
        engine.stop()
        engine.wait()


if __name__ == "__main__":
    main()
