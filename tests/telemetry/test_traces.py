"""Spans of leases, failures and actions; the trace of an event goes on in its handler."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import penstock
from penstock.core.limits import SPAN_LINKS
from penstock.telemetry import traces
from tests.support.collector import Collector
from tests.support.local_engine import run_local_until_drained
from tests.support.running import PYTHONPATH
from tests.support.running import penstock as command_line

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE = int("0af7651916cd43dd8448eb211c80319c", 16)
_exporter = InMemorySpanExporter()


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """Traces are on, and the program has set up OpenTelemetry itself."""
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(_exporter))
        trace.set_tracer_provider(provider)
    _exporter.clear()
    traces.start()
    yield _exporter
    traces.stop()


def named(spans: InMemorySpanExporter, name: str) -> list[Any]:
    return [one for one in spans.get_finished_spans() if one.name == name]


def shop(**options: Any) -> penstock.App:
    app = penstock.App(name="shop")
    tracer = trace.get_tracer("shop")

    @app.subscribe("orders", group="fraud", isolation="inline", retry=penstock.Retry(max_attempts=1), **options)
    def screen(event: penstock.Event, ctx: penstock.Context) -> None:
        with tracer.start_as_current_span("screen", attributes={"traceparent": ctx.traceparent or ""}):
            if event.json() == "bad":
                raise ValueError("customer 42")

    return app


@pytest.mark.shows("O03")
def test_a_lease_is_a_span_with_links_to_its_events(log: penstock.Log, spans: InMemorySpanExporter) -> None:
    log.append_many("orders", [{"payload": n, "type": "t", "metadata": {"traceparent": PARENT}} for n in range(3)])
    run_local_until_drained(log, *shop().chosen())
    (lease,) = named(spans, traces.LEASE)
    assert {*lease.attributes} == {*traces.SPANS[traces.LEASE]}
    assert lease.attributes["penstock.published"] == 3 and lease.attributes["messaging.destination.name"] == "orders"
    assert [one.context.trace_id for one in lease.links] == [TRACE], "once, however many events have it"
    assert 0 < lease.start_time < lease.end_time and lease.parent is None
    seconds = sum(lease.attributes[f"penstock.{one}_seconds"] for one in ("handle", "settle"))
    assert (lease.end_time - lease.start_time) / 1e9 >= seconds


def test_links_are_capped_and_looked_for_here_and_there(log: penstock.Log, spans: InMemorySpanExporter) -> None:
    def parent(n: int) -> str:
        return f"00-{n + 1:032x}-{n + 1:016x}-01"

    log.append_many(
        "orders", [{"payload": n, "type": "t", "metadata": {"traceparent": parent(n)}} for n in range(SPAN_LINKS + 5)]
    )
    log.create_group("orders", "fraud")
    lease = log.claim("orders", "fraud", limit=1000, claimed_by="w")
    assert lease is not None
    assert len(traces.links_of(lease.events)) == SPAN_LINKS


@pytest.mark.shows("O03", "R09")
@pytest.mark.parametrize("options", [{}, {"concurrency": 3}], ids=["one", "several"])
def test_spans_of_a_handler_belong_to_its_events_trace(
    log: penstock.Log, spans: InMemorySpanExporter, options: dict[str, Any]
) -> None:
    log.append("orders", 1, type="t", metadata={"traceparent": PARENT})
    log.append("orders", 2, type="t")
    log.append("orders", 3, type="t", headers={"traceparent": PARENT})
    run_local_until_drained(log, *shop(**options).chosen())
    found = named(spans, "screen")
    assert sorted(one.parent is not None and one.parent.trace_id == TRACE for one in found) == [False, True, True]
    assert sorted(one.attributes["traceparent"] for one in found) == ["", PARENT, PARENT]


@pytest.mark.shows("R09")
def test_an_async_handler_and_a_job_go_on_with_the_trace(log: penstock.Log, spans: InMemorySpanExporter) -> None:
    app, tracer = penstock.App(name="shop"), trace.get_tracer("shop")

    @app.subscribe("orders", group="fraud", isolation="inline", concurrency=2)
    async def screen(event: penstock.Event) -> None:
        tracer.start_span(f"async {event.json()}").end()

    log.append_many("orders", [{"payload": n, "type": "t", "metadata": {"traceparent": PARENT}} for n in range(4)])
    run_local_until_drained(log, *app.chosen())
    found = [one for one in spans.get_finished_spans() if one.name.startswith("async")]
    assert len(found) == 4 and all(one.parent is not None and one.parent.trace_id == TRACE for one in found)


@pytest.mark.shows("O03", "X09")
def test_a_failed_event_is_a_span_without_its_words(log: penstock.Log, spans: InMemorySpanExporter) -> None:
    log.append("orders", "bad", type="t", metadata={"traceparent": PARENT})
    log.append("orders", "bad", type="t")
    run_local_until_drained(log, *shop().chosen())
    first, second = named(spans, traces.FAILURE)
    assert {*first.attributes} == {*traces.SPANS[traces.FAILURE]} - {"exception.message"}
    assert first.attributes["penstock.code"] == "ValueError" and first.attributes["penstock.fingerprint"]
    assert first.parent is not None and first.parent.trace_id == TRACE
    (lease,) = named(spans, traces.LEASE)
    assert second.parent is not None and second.parent.span_id == lease.context.span_id
    assert "customer" not in str([one.to_json() for one in (first, second, lease)])


def test_an_action_belongs_to_the_trace_of_whoever_acts(log: penstock.Log, spans: InMemorySpanExporter) -> None:
    log.append("orders", 1, type="t")
    log.create_group("orders", "fraud")
    with trace.get_tracer("shop").start_as_current_span("mend") as mend:
        log.pause("orders", "fraud", by="me")
    (action,) = named(spans, traces.ACTION)
    assert {*action.attributes} == {*traces.SPANS[traces.ACTION]}
    assert action.parent is not None and action.parent.span_id == mend.get_span_context().span_id


@pytest.mark.shows("R09")
def test_an_append_carries_the_current_span_unless_it_has_a_trace(
    log: penstock.Log, spans: InMemorySpanExporter
) -> None:
    log.append("orders", 0, type="t")
    with trace.get_tracer("shop").start_as_current_span("order") as span:
        log.append("orders", 1, type="t", metadata={"note": "mine"})
        log.append("orders", 2, type="t", metadata={"traceparent": PARENT})
        log.append("orders", 3, type="t", headers={"Traceparent": PARENT})
        log.append_many("orders", [{"payload": 4, "type": "t"}, {"payload": 5, "type": "t", "ordering_key": "k"}])
        log.submit_many("mail", [{"payload": 6}])
        again = log.append("orders", 1, type="t", event_id=log.read("orders")[1].event_id)
    context = span.get_span_context()
    ours = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    found = [event.trace.get("traceparent") for event in log.read("orders")]
    assert found == [None, ours, PARENT, PARENT, ours, ours] and again.duplicate
    assert log.read("orders")[1].metadata["note"] == "mine"
    assert [event.trace.get("traceparent") for event in log.read("jobs:default:0:mail")] == [ours]
    traces.stop()
    with trace.get_tracer("shop").start_as_current_span("order"):
        log.append("orders", 7, type="t")
    assert log.read("orders")[-1].trace == {}, "only while traces are on"


APP = """
import penstock
from opentelemetry import trace
app = penstock.App(name="shop")

@app.subscribe("orders", group="fraud")
def screen(event):
    trace.get_tracer("shop").start_span("screen").end()

@app.job("mail")
def send(payload):
    trace.get_tracer("shop").start_span("send").end()
"""


@pytest.mark.shows("O03")
@pytest.mark.parametrize("log_url", ["sqlite"], indirect=True)
def test_the_command_line_sends_traces_of_all_its_processes(log: penstock.Log, log_url: str, tmp_path: Path) -> None:
    log.append("orders", 1, type="t", metadata={"traceparent": PARENT})
    log.submit("mail", {"to": "ada"})
    (tmp_path / "shop.py").write_text(APP)
    with Collector() as collector:
        environment = {"PYTHONPATH": PYTHONPATH, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
        arguments = ("run", "shop.py", "--engine", "local", "--until-drained", "--traces", "--processes", 2)
        with command_line(tmp_path, *arguments, "--url", log_url, environment=environment) as running:
            assert running.wait() == 0, running.err
        names = [one.name for one in collector.spans]
        assert sorted(names) == [traces.LEASE, traces.LEASE, "screen", "send"]
        (screen,) = [one for one in collector.spans if one.name == "screen"]
        assert int.from_bytes(screen.trace_id, "big") == TRACE
        assert collector.services == {"penstock"}
