"""One worker of many, written by hand: claim a job, wait, complete it, until there is none."""

from __future__ import annotations

import os
import sys
import time

import penstock


def main(url: str, seconds: float) -> None:
    me, done, first = f"w-{os.getpid()}", 0, 0.0
    with penstock.open(url) as log:
        while (job := log.claim_job(me, types=["order"])) is not None:
            first = first or time.time()
            time.sleep(seconds)
            log.complete_job(job.id, me, token=job.token)
            done += 1
    print(first, time.time(), done)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
