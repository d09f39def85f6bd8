"""The examples do what their pages say; each is run as users run it, against real servers."""

from __future__ import annotations

import re
import runpy
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import penstock
from penstock.declare.load import load_file
from tests.support.raw_sql import raw
from tests.support.running import Running
from tests.support.valkey_server import ValkeyServer

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PATIENCE = 200  # Spark may start slowly on a busy machine

on_sqlite = pytest.mark.parametrize("log_url", ["sqlite"], indirect=True)
on_postgres = pytest.mark.parametrize("log_url", ["postgresql"], indirect=True)
Run = Callable[[str], dict[str, Any]]


@pytest.fixture
def run(log_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a file of the examples as `python FILE` does, in the test's directory and on its log."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_URL", log_url)
    return lambda file: runpy.run_path(str(EXAMPLES / file), run_name="__main__")


def states(log: penstock.Log, stream: str, group: str) -> Counter[str]:
    return Counter(str(one.state) for one in log.deliveries(stream, group, limit=10_000))


# --- shop -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def shop(log_url: str, tmp_path: Path) -> Iterator[httpx.Client]:
    """The shop, served by a real server on a free port."""
    command = (sys.executable, "-m", "uvicorn", "app:app", "--app-dir", EXAMPLES / "shop", "--port", 0)
    with Running(tmp_path, *command, environment={"PENSTOCK_URL": log_url}) as server:
        server.wait_for_words("Uvicorn running on")
        found = re.search(r"running on (http://[\d.:]+)", server.err)
        assert found is not None
        with httpx.Client(base_url=found[1], timeout=30) as client:
            yield client
        server.process.send_signal(signal.SIGTERM)
        assert server.wait() in (0, -signal.SIGTERM)
        assert "Traceback" not in server.err


@pytest.mark.shows("K01")
def test_shop_commits_order_and_event_together_or_neither(shop: httpx.Client, log: penstock.Log, log_url: str) -> None:
    def order(count: int, product: str = "teapot") -> httpx.Response:
        return shop.post("/orders", json={"customer": "ada", "product": product, "count": count})

    placed = [order(4), order(5)]
    refused = [order(2), order(1, product="samovar")]  # one teapot is left, and there are no samovars
    assert [one.status_code for one in placed] == [201, 201]
    assert [one.status_code for one in refused] == [409, 409]
    assert order(1).status_code == 201  # a refused order takes nothing

    with raw(log_url) as sql:
        orders = sql("select id, product, count from orders order by id")
        assert sql("select in_stock from products") == [(0,)]
    events = [event.json() for event in log.read("orders")]
    assert [(one["id"], one["product"], one["count"]) for one in events] == orders
    assert [count for _, _, count in orders] == [4, 5, 1]


# --- fraud ------------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(300)
@on_sqlite
@pytest.mark.shows("K14", "K27")
def test_fraud_scores_once_and_alerts(log: penstock.Log, log_url: str, tmp_path: Path, run: Run) -> None:
    run("fraud/payments.py")
    app = EXAMPLES / "fraud" / "app.py"
    command = (sys.executable, "-m", "penstock.cli", "run", app, "--until-drained", "--master", "local[2]")
    with Running(tmp_path, *command, environment={"PENSTOCK_URL": log_url}) as running:
        assert running.process.wait(PATIENCE) == 0
    assert "published=506 failed=0 dead=1" in running.out

    with raw(log_url) as sql:
        scores = sql("select payment_id, count(*), max(score) from scores group by payment_id order by payment_id")
    assert [(number, times) for number, times, _ in scores] == [(number, 1) for number in range(1, 507)]
    assert [score for *_, score in scores[500:]] == [0, 20, 40, 60, 80, 100]
    alerts = [event.json() for event in log.read("alerts")]
    assert alerts == [
        {"payment": 505, "card": "card-x", "score": 80},
        {"payment": 506, "card": "card-x", "score": 100},
    ]
    (dead,) = log.deliveries("payments", "fraud", state="DEAD")
    assert (dead.json()["id"], dead.attempts, dead.error_code) == (507, 1, "Permanent")
    assert "malformed payment: ValueError" in str(dead.last_error)


# --- revenue ----------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(300)
@on_postgres
@pytest.mark.shows("S09")
def test_revenue_windows_continue_after_a_restart(spark: Any, log: penstock.Log, log_url: str, run: Run) -> None:
    run("revenue/sales.py")
    run("revenue/app.py")
    sales = load_file(EXAMPLES / "revenue" / "sales.py").sales
    assert revenue(log_url) == expected(sales(0, 180))
    log.append_many("sales", sales(180, 240))  # also late ones, for minutes that are stored already
    run("revenue/app.py")
    assert revenue(log_url) == expected(sales(0, 240))
    assert states(log, "sales", "revenue") == {"PUBLISHED": 240}


def revenue(url: str) -> dict[str, tuple[int, int]]:
    with raw(url) as sql:
        return {minute: (cents, sales) for minute, cents, sales in sql("select minute, cents, sales from revenue")}


def expected(sales: list[dict[str, Any]]) -> dict[str, tuple[int, int]]:
    """The revenue, computed in plain Python."""
    cents: Counter[str] = Counter()
    count: Counter[str] = Counter()
    for sale in sales:
        minute = sale["payload"]["at"][:16].replace("T", " ")
        cents[minute] += sale["payload"]["cents"]
        count[minute] += 1
    return {minute: (cents[minute], count[minute]) for minute in cents}


# --- enrichment -------------------------------------------------------------------------------------------------------


@pytest.fixture
def geocoder(spark: Any) -> Iterator[Any]:
    """The unreliable service of the example, on a free port that Spark's workers know."""
    with load_file(EXAMPLES / "enrichment" / "service.py").Geocoder() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        spark.sparkContext.environment["GEOCODER_URL"] = f"http://127.0.0.1:{server.server_port}"
        yield server
        del spark.sparkContext.environment["GEOCODER_URL"]
        server.shutdown()
        thread.join()


@pytest.mark.timeout(300)
@on_postgres
@pytest.mark.shows("K13", "K14")
def test_enrichment_completes_despite_an_unreliable_service(
    geocoder: Any, log: penstock.Log, log_url: str, run: Run
) -> None:
    run("enrichment/parcels.py")
    run("enrichment/app.py")
    with raw(log_url) as sql:
        places = sql("select parcel, count(*), max(lat) from places group by parcel order by parcel")
    assert places == [(number, 1, pytest.approx(52 + number / 1000)) for number in range(1, 300)]

    found = {one.json()["id"]: one for one in log.deliveries("parcels", "geocode", limit=1_000)}
    assert {number for number, one in found.items() if one.state == "DEAD"} == {300}
    assert found[300].error_code == "Permanent" and "unknown address: nowhere" in str(found[300].last_error)
    moody = {number for number in range(1, 300) if number % 10 in (1, 2, 3)}  # refused, failed or lost once
    failed = {number: one.last_error for number, one in found.items() if one.failures}
    assert failed.keys() == {*moody, 300}, failed
    assert {found[number].failures for number in failed} == {1}

    assert geocoder.requests > 300 + len(moody)  # refusals while it was down count no failure
    assert Counter(geocoder.billed.values()) == {f"{number} High Street": 1 for number in range(1, 300)}
    assert geocoder.most_at_work > 4  # two slots that ask in sequence would reach only two


# --- lake -------------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(300)
@on_postgres
@pytest.mark.shows("S04")
def test_lake_has_every_click_once(spark: Any, log: penstock.Log, tmp_path: Path, run: Run) -> None:
    run("lake/clicks.py")
    run("lake/app.py")
    log.append_many("clicks", [{"payload": {"user": "u-1", "page": "/late"}, "type": "page.seen"}] * 20)
    run("lake/app.py")

    rows = spark.read.parquet(str(tmp_path / "lake" / "clicks")).collect()
    clicks = {event.offset: event for event in log.read("clicks", limit=10_000) if event.payload != b"not json"}
    assert len(clicks) == 1_020
    assert sorted((row.offset, row.event_id, row.user, row.page) for row in rows) == [
        (offset, str(event.event_id), event.json()["user"], event.json()["page"]) for offset, event in clicks.items()
    ]
    (dead,) = log.deliveries("clicks", "lake", state="DEAD")
    assert (dead.attempts, dead.last_error) == (2, "not a click")


# --- notebook ---------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(300)
@on_sqlite
@pytest.mark.shows("S06", "K23")
def test_notebook_runs_from_append_to_redrive(
    spark: Any, log: penstock.Log, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    run("notebook/walkthrough.py")
    assert {key: log.state("orders", "totals", key) for key in ("c-0", "c-1")} == {
        "c-0": {"cents": 400 + 990},
        "c-1": {"cents": 1250 - 5 + 70},
    }
    assert states(log, "orders", "totals") == states(log, "orders", "audit") == {"PUBLISHED": 5}
    printed = capsys.readouterr().out
    for words in (
        "3 {'id': 3, 'cents': -5} a negative amount: -5",
        "[1, 2, 3, 4, 5]",
        "1 redriven",
        "|    totals|PUBLISHED|    5|",
        "|     audit|PUBLISHED|    5|",
    ):
        assert words in printed


# --- the pages --------------------------------------------------------------------------------------------------------


def test_every_example_has_a_row_in_the_table() -> None:
    table = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    folders = {one.name for one in EXAMPLES.iterdir() if one.is_dir()}
    assert folders == set(re.findall(r"^\| \[(\w+)\]\(\1/", table, re.MULTILINE))


@pytest.mark.parametrize("page", sorted(EXAMPLES.glob("**/README.md")), ids=lambda page: page.parent.name)
def test_pages_name_files_that_are_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^):\s#]+)\)", text):
        assert (page.parent / link).exists(), link
    for file in re.findall(r"examples/[\w/]+\.py", text):
        assert (ROOT / file).is_file(), file


# --- webhook ----------------------------------------------------------------------------------------------------------


@pytest.mark.shows("R06")
def test_webhook_is_verified_and_handled_once(log: penstock.Log, log_url: str, tmp_path: Path) -> None:
    (tmp_path / "receiver").mkdir()
    environment = {"PENSTOCK_URL": log_url, "WEBHOOK_SECRET": "of this test", "RECEIVER_PORT": "0"}
    receiver = Running(
        tmp_path / "receiver", sys.executable, EXAMPLES / "webhook" / "receiver.py", environment=environment
    )
    with receiver:
        receiver.wait_until(lambda: "listening" in receiver.out, "the receiver listens")
        url = receiver.out.split()[-1]
        for number in (7, 8):
            log.append("orders", {"id": number, "amount": 12.5}, type="order.created")

        def relay(secret: str) -> str:
            command = (sys.executable, EXAMPLES / "webhook" / "app.py")
            settings = {**environment, "RECEIVER_URL": url, "WEBHOOK_SECRET": secret}
            with Running(tmp_path, *command, environment=settings) as running:
                assert running.wait() == 0
            return running.out

        assert "published=2" in relay("of this test")
        log.replay("orders", "to-receiver", event_ids=[log.read("orders")[0].event_id], by="test")
        assert "published=1" in relay("of this test")  # comes again, and changes nothing
        log.append("orders", {"id": 9, "amount": 1}, type="order.created")
        assert "dead=1" in relay("of somebody else")
        assert httpx.get(url).json() == [{"id": 7, "amount": 12.5}, {"id": 8, "amount": 12.5}]


# --- valkey -----------------------------------------------------------------------------------------------------------


@pytest.mark.shows("R06", "R07", "R12")
def test_valkey_in_and_out_counts_every_click_once(log: penstock.Log, log_url: str, tmp_path: Path) -> None:
    with ValkeyServer() as server:
        client = server.client()
        environment = {"PENSTOCK_URL": log_url, "VALKEY_URL": server.url}

        def work() -> None:
            command = (sys.executable, EXAMPLES / "valkey" / "app.py")
            with Running(tmp_path, *command, environment=environment) as running:
                assert running.wait() == 0

        for number in range(25):
            client.xadd("clicks", {"page": f"p{number % 2}", "session": "s"})
        client.xadd("clicks", {"session": "without a page"})
        work()
        for _ in range(8):
            client.xadd("clicks", {"page": "p1"})
        work()
        found = [(fields[b"key"], fields[b"payload"]) for _, fields in client.xrange("milestones")]
    assert sorted(found) == [
        (b"p0", b'{"page":"p0","clicks":10}'),
        (b"p1", b'{"page":"p1","clicks":10}'),
        (b"p1", b'{"page":"p1","clicks":20}'),
    ]
    assert [event.json()["reason"] for event in log.read("clicks.rejected")] == ["a click has a page"]
