"""Debian's Prometheus scrapes a real service and a real engine; every shipped query and alert works on what it has."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from tests.support.prometheus_server import DEPLOY, PrometheusServer
from tests.support.running import PYTHONPATH, Running
from tests.support.running import penstock as command_line
from tests.support.server_process import free_port
from tests.support.waiting import wait_until

DASHBOARD = json.loads((DEPLOY / "grafana" / "penstock.json").read_text(encoding="utf-8"))
APP = '''
import penstock

class Nothing:
    """A source that never has anything."""
    name = source = "nothing"
    def open(self, ingests): return self
    def fields_of(self, entry): return None
    def read(self, seconds): import time; time.sleep(min(seconds, 0.2))
    def acknowledge(self, batch, ingested): pass
    def overtaken(self, batch): pass
    def rest(self, idle): pass
    def drained(self): return True
    def close(self): pass

app = penstock.App(name="shop")
app.ingest(Nothing(), into="clicks")

@app.subscribe("orders", group="fraud", retry=penstock.Retry(max_attempts=1))
def screen(event):
    if event.json() == "bad":
        raise ValueError("no")

@app.job("mail")
def send(payload): ...
'''


@pytest.mark.shows("O03")
@pytest.mark.timeout(240)
def test_every_query_has_series_and_alerts_fire(postgres_log_url: str, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP)
    served, engine = free_port(), free_port()
    with penstock.open(postgres_log_url) as log:
        token = log.create_token("prometheus", ["read"]).secret
        log.append("orders", "good", type="t")
        log.submit("mail", {})
        with (
            _started(tmp_path / "serve", postgres_log_url, "serve", "--port", served),
            _started(
                tmp_path / "run",
                *(postgres_log_url, "run", tmp_path / "shop.py", "--engine", "local", "--metrics-port", engine),
            ),
            PrometheusServer(f"127.0.0.1:{served}", f"127.0.0.1:{engine}", token) as prometheus,
        ):
            _check_healthy(prometheus)
            log.append_many("orders", [{"payload": "bad", "type": "t"} for _ in range(3)])
            log.append("orders", "good", type="t")
            _act(served, log.create_token("operator", ["admin"]).secret)
            left = {one: query for one, query in enumerate(queries())}

            def look() -> bool:
                for one in [one for one, query in left.items() if prometheus.series(query)]:
                    del left[one]
                return not left

            try:
                wait_until(look, "series of every query", 90)
            except TimeoutError as error:
                raise AssertionError(f"no series: {[*left.values()]}") from error
            wanted = {"PenstockDeadLetters", "PenstockGroupPaused"}
            wait_until(lambda: wanted <= prometheus.firing(), "two alerts to fire")
            for rule in _rules(prometheus):
                prometheus.series(rule["query"])
                assert rule["health"] == "ok", rule


def _started(directory: Path, url: str, *arguments: object) -> Running:
    directory.mkdir()
    return command_line(
        directory, *arguments, "--url", url, environment={"PYTHONPATH": PYTHONPATH, "PENSTOCK_TOKEN": "t"}
    )


def _check_healthy(prometheus: PrometheusServer) -> None:
    """Both targets were scraped, twice, before anything goes wrong: an alert on an increase needs a before."""
    wait_until(lambda: len(prometheus.series('up{job=~"penstock.*"} == 1')) == 2, "both targets to be up", 90)
    wait_until(lambda: bool(prometheus.series("penstock_group_paused == 0")), "the group to be seen")
    wait_until(lambda: bool(prometheus.series('penstock_group_deliveries{state="dead"} == 0')), "no dead letters")


def _act(port: int, secret: str) -> None:
    """What only the service counts: an append, and an operator's action."""
    from penstock.connect.http import Client

    with Client(f"http://127.0.0.1:{port}", token=secret) as client:
        client.append("orders", "good", type="t")
        client.create_group("orders", "idle")
        client.pause("orders", "idle")


def queries() -> Iterator[str]:
    """Every query of the dashboard, with everything chosen."""
    for expression in sorted(set(_expressions(DASHBOARD))):
        filled = re.sub(r"\$(stream|group)\b", ".*", expression).replace("$__rate_interval", "30s")
        assert "$" not in filled, filled
        yield filled


def _expressions(of: Any) -> Iterator[str]:
    if isinstance(of, dict):
        if isinstance(of.get("expr"), str):
            yield of["expr"]
        for one in of.values():
            yield from _expressions(one)
    elif isinstance(of, list):
        for one in of:
            yield from _expressions(one)


def _rules(prometheus: PrometheusServer) -> list[dict[str, Any]]:
    return [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]


@pytest.mark.shows("O03")
def test_promtool_accepts_rules_and_configuration(tmp_path: Path) -> None:
    for what in ("rules alerts.yml", "config prometheus.yml"):
        kind, name = what.split()
        text = (DEPLOY / "prometheus" / name).read_text(encoding="utf-8")
        (tmp_path / "token").write_text("t")
        (tmp_path / name).write_text(text.replace("/etc/prometheus/penstock.token", str(tmp_path / "token")))
        done = subprocess.run(["promtool", "check", kind, str(tmp_path / name)], check=False, capture_output=True)
        assert done.returncode == 0, (done.stdout + done.stderr).decode()


def test_the_dashboard_is_one_that_grafana_loads() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids)) and DASHBOARD["schemaVersion"] >= 39 and DASHBOARD["uid"] == "penstock"
    first, *_ = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert first == "Problems"
    assert {one["name"] for one in DASHBOARD["templating"]["list"]} == {"datasource", "stream", "group"}
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24 and panel["title"]
