"""Sample clicks, one of which is no JSON at all."""

import penstock

CLICKS = 1_000

if __name__ == "__main__":
    with penstock.open() as log:
        log.append_many(
            "clicks",
            [
                {"payload": {"user": f"u-{n % 50}", "page": f"/products/{n % 20}"}, "type": "page.seen"}
                for n in range(CLICKS)
            ],
        )
        log.append("clicks", b"not json", type="page.seen", content_type="text/plain")
