"""`penstock ingest` in a process of its own, and `penstock run` beside handlers."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock as library
from tests.cli.conftest import Command
from tests.support.running import penstock
from tests.support.valkey_server import ValkeyServer

PASSWORD = "s3cret-word"
SHOP = """
from penstock import App
from penstock.connect import ValkeyStream

app = App({url!r}, name="shop")
app.ingest(ValkeyStream({valkey!r}, "clicks"), into="clicks")

@app.subscribe("clicks", group="count", isolation="inline")
def count(event):
    pass
"""


@pytest.fixture(scope="module")
def valkey() -> Iterator[ValkeyServer]:
    with ValkeyServer(PASSWORD) as server:
        yield server


@pytest.fixture
def shop(tmp_path: Path, log_url: str, valkey: ValkeyServer) -> Path:
    """An app, and ten clicks."""
    client = valkey.client()
    client.flushall()
    for n in range(10):
        client.xadd("clicks", {"n": n})
    path = tmp_path / "shop.py"
    path.write_text(SHOP.format(url=log_url, valkey=valkey.url))
    return path


def stored(log_url: str) -> list[int]:
    with library.open(log_url) as log:
        return [int(event.json()["n"]) for event in log.read("clicks")]


@pytest.mark.shows("R07")
def test_ingest_until_drained_answers_with_counts(shop: Path, tmp_path: Path, log_url: str) -> None:
    with penstock(tmp_path, "ingest", shop, "--until-drained", "--json") as running:
        assert running.wait() == 0
        document = json.loads(running.out)
    ((name, counts),) = document["sources"].items()
    assert name.endswith("clicks/penstock > clicks") and (counts["stored"], counts["known"]) == (10, 0)
    assert document["failed"] == {} and stored(log_url) == [*range(10)]
    with penstock(tmp_path, "ingest", shop, "--until-drained") as running:
        assert running.wait() == 0
        assert "sources=1 stored=0 known=0 rejected=0" in running.out and "began on the ingest engine" in running.err


@pytest.mark.shows("K42", "R07")
def test_ingest_waits_for_its_source_says_so_and_stops_when_told(
    shop: Path, tmp_path: Path, log_url: str, valkey: ValkeyServer
) -> None:
    with penstock(tmp_path, "ingest", shop) as running:
        running.wait_until(lambda: len(stored(log_url)) == 10, "ten events")
        valkey.kill()
        running.wait_for_words("waiting for valkey 127.0.0.1")
        valkey.start()
        running.wait_for_words("is back after")
        valkey.client().xadd("clicks", {"n": 10})
        running.wait_until(lambda: len(stored(log_url)) == 11, "eleven events")
        running.process.send_signal(signal.SIGTERM)
        assert running.wait() == 0
        assert "stopped after" in running.out and "stored=11" in running.out
        assert PASSWORD not in running.out + running.err


@pytest.mark.shows("R07")
@pytest.mark.parametrize("processes", [1, 2])
def test_run_ingests_beside_handlers(shop: Path, tmp_path: Path, log_url: str, processes: int) -> None:
    options = ("--engine", "local", "--until-drained", "--json", "--processes", processes)
    with penstock(tmp_path, "run", shop, *options) as running:
        assert running.wait() == 0
        assert json.loads(running.out)["groups"]["clicks/count"]["published"] == 10
    with penstock(tmp_path, "run", shop, "--engine", "local", "--until-drained", "--group", "count") as running:
        assert running.wait() == 0
        assert "sources=" not in running.out


def test_what_cannot_be_ingested_is_refused(command: Command, tmp_path: Path, log_url: str) -> None:
    (tmp_path / "none.py").write_text(f"from penstock import App\napp = App({log_url!r})\n")
    refused = command("ingest", str(tmp_path / "none.py"), "--json")
    assert (refused.code, refused.error) == (2, "invalid_input")
    (tmp_path / "odd.py").write_text(
        "import penstock\napp = penstock.App()\n"
        "app.ingest(penstock.connect.ValkeyStream('http://me:s3cret-word@here', 'clicks'), into='clicks')\n"
    )
    odd = command("ingest", str(tmp_path / "odd.py"), "--json")
    assert odd.code == 2 and PASSWORD not in odd.out + odd.err
