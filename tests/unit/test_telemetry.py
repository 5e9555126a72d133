"""Logs that hold nothing private, metrics that keep their names, and pages that say what to do."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from uuid import UUID

import aiohttp
import pytest
import structlog
from prometheus_client import CollectorRegistry

from outbox_relay.errors import LedgerUnavailable, SettingsError
from outbox_relay.states import STATES
from outbox_relay.telemetry import (
    AttemptLine,
    Health,
    HealthServer,
    LedgerSeries,
    LedgerSnapshot,
    ProviderCounts,
    Readiness,
    ReconcilerMetrics,
    RelayMetrics,
    configure_logging,
    get_logger,
    log_attempt,
    log_failure,
    logs,
    new_registry,
)
from outbox_relay.telemetry.ledger_series import state_label
from outbox_relay.telemetry.logs import PRIVATE_FIELDS

ROOT = Path(__file__).resolve().parents[2]
LINE = AttemptLine(
    action_id=UUID(int=1),
    attempt=2,
    provider="resend",
    account="default",
    operation="emails.send",
    finding="accepted",
    reason="accepted",
    status=200,
    duration_ms=12.34,
)


@pytest.fixture
def out(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """Capture what the configured logging writes, and put logging back afterwards."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    configure_logging(program="relay", instance="relay-1")
    yield stream
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_every_attempt_leaves_one_json_line_with_the_same_fields(out: io.StringIO) -> None:
    log_attempt(get_logger("test"), LINE)
    (line,) = lines(out)
    assert line["event"] == "attempt"
    assert line["program"] == "relay"
    assert {"action_id", "attempt", "provider", "account", "finding", "reason", "status", "duration_ms"} <= line.keys()


@pytest.mark.parametrize("trace_id", [None, "4bf92f3577b34da6a3ce929d0e0e4736", 'a"b'])
@pytest.mark.parametrize("reason", ["http_200", 'quoted "\n', "\u00e9"])
def test_the_direct_line_of_an_attempt_is_that_of_the_chain(
    out: io.StringIO, trace_id: str | None, reason: str
) -> None:
    line = replace(LINE, trace_id=trace_id, reason=reason)
    log = get_logger("test")
    bound = (log, log.bind(worker="w-1"), log)
    for one in bound:
        log_attempt(one, line)
    logs._DIRECT.configure([], None, {})
    for one in bound:
        log_attempt(one, line)
    said = lines(out)
    for one_line in said:
        assert str(one_line.pop("time")).endswith("Z")
    assert len(said) == 6
    assert said[:3] == said[3:]
    assert [one_line.get("worker") for one_line in said[:3]] == [None, "w-1", None]


def test_an_attempts_line_below_the_level_is_not_written(out: io.StringIO, capsys: pytest.CaptureFixture[str]) -> None:
    for level in ("info", "warning"):
        configure_logging(program="relay", instance="relay-1", log_format="json", level=level)
        log_attempt(get_logger("test"), LINE)
    assert capsys.readouterr().out.count('"event": "attempt"') == 1
    assert out.getvalue() == ""


def test_the_time_of_an_attempt_is_that_of_the_clock(out: io.StringIO) -> None:
    before = int(time.clock_gettime(time.CLOCK_REALTIME))
    log_attempt(get_logger("test"), LINE)
    (line,) = lines(out)
    assert before <= datetime.fromisoformat(str(line["time"])).timestamp() <= time.clock_gettime(time.CLOCK_REALTIME)


def test_private_fields_are_withheld_whoever_logs_them(out: io.StringIO) -> None:
    get_logger("test").info("careless", **dict.fromkeys(PRIVATE_FIELDS, "hunter2"))
    logging.getLogger("library").error("careless", extra={"payload": "hunter2"})
    assert "hunter2" not in out.getvalue()
    assert len(lines(out)) == 2


def test_messages_of_foreign_errors_are_not_printed_but_their_place_is(out: io.StringIO) -> None:
    log = get_logger("test")
    try:
        json.loads('{"recipient": "ada@example.com"')
    except ValueError as error:
        log_failure(log, "task_failed", error)
        log.exception("task_failed")
        logging.getLogger("asyncio").exception("task failed")
    assert "ada@example.com" not in out.getvalue()
    for line in lines(out):
        assert str(line["error"]).startswith("JSONDecodeError")
        assert line["frames"]


def test_our_own_errors_are_printed_with_their_hint(out: io.StringIO) -> None:
    log_failure(get_logger("test"), "ledger", LedgerUnavailable("the ledger is away", hint="start it"))
    (line,) = lines(out)
    assert line["error"] == "LedgerUnavailable: the ledger is away"
    assert line["hint"] == "start it"


def test_library_chatter_below_warning_is_left_out(out: io.StringIO) -> None:
    logging.getLogger("aiohttp.client").info("chatter")
    assert not lines(out)


def names(registry: CollectorRegistry) -> set[str]:
    return {metric.name for metric in registry.collect()}


def test_counters_are_kept_apart() -> None:
    """The list that a person asks for, each under a name of its own."""
    relay, reconciler = new_registry("relay"), new_registry("reconciler")
    RelayMetrics(relay)
    ReconcilerMetrics(reconciler)
    LedgerSeries(reconciler).show(LedgerSnapshot({}))
    everything = names(relay) | names(reconciler)
    assert everything >= {
        "outbox_actions_created",
        "outbox_dispatch_attempts",
        "outbox_acceptances",
        "outbox_unknown",
        "outbox_reconciliations",
        "outbox_awaiting_review",
        "outbox_rejections",
        "outbox_receipts",
        "outbox_refused_claims",
        "outbox_stale_writes_refused",
        "outbox_wakeups",
        "outbox_backlog",
        "outbox_oldest_due_age_seconds",
        "outbox_build",
    }


def test_no_series_about_the_time_of_a_series_creation() -> None:
    registry = new_registry("relay")
    RelayMetrics(registry).claimed.labels("resend").inc()
    exported = {sample.name for metric in registry.collect() for sample in metric.samples}
    assert not {name for name in exported if name.endswith("_created")}


def test_created_equals_the_sum_of_all_states_in_every_scrape() -> None:
    registry = new_registry("reconciler")
    series = LedgerSeries(registry)
    assert "outbox_actions" not in names(registry), "nothing is shown that nobody counted"
    series.show(LedgerSnapshot({"resend": ProviderCounts(created=5, states={STATES[0]: 2, STATES[3]: 3}, due=2)}))
    states = sum(registry.get_sample_value("outbox_actions", sample) or 0 for sample in state_labels())
    assert registry.get_sample_value("outbox_actions_created_total", {"provider": "resend"}) == 5
    assert states == 5


def state_labels() -> list[dict[str, str]]:
    return [{"provider": "resend", "state": state_label(state)} for state in STATES]


def test_every_state_has_a_label_of_its_own() -> None:
    assert len({state_label(state) for state in STATES}) == len(STATES)


def test_the_metrics_page_names_every_series() -> None:
    relay, reconciler = new_registry("relay"), new_registry("reconciler")
    RelayMetrics(relay)
    ReconcilerMetrics(reconciler)
    LedgerSeries(reconciler).show(LedgerSnapshot({}))
    ours = {name for name in names(relay) | names(reconciler) if name.startswith("outbox_")}
    page = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    told = set(re.findall(r"^\| `(outbox_[a-z_]+?)(?:_total|_info)?[`{]", page, flags=re.MULTILINE))
    assert told == ours


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_liveness_is_the_turning_of_the_loops_and_nothing_else() -> None:
    clock = Clock()
    health = Health(clock=clock)
    health.expect_beats("claims")
    health.report("ledger", Readiness.NOT_READY, "gone", "start it")
    assert health.alive()[0], "a dead dependency is not cured by a restart"
    health.beat("claims", within_s=5)
    clock.now = 5.1
    alive, body = health.alive()
    assert not alive
    assert "claims" in str(body)
    health.forget("claims")
    assert health.alive()[0]


def test_readiness_is_the_worst_check_and_says_what_to_do() -> None:
    health = Health()
    assert health.ready()[0] is Readiness.NOT_READY, "not before the first check"
    health.report("ledger", Readiness.READY, "reachable")
    health.report("kafka", Readiness.DEGRADED, "no broker; dispatch goes on from the sweep", "start it")
    readiness, body = health.ready()
    assert readiness is Readiness.DEGRADED
    assert "start it" in json.dumps(body)


async def test_the_pages_answer_and_the_metrics_follow_what_is_asked_for() -> None:
    health, registry = Health(), new_registry("relay")
    metrics = RelayMetrics(registry)
    metrics.attempt_seconds.labels("resend").observe(0.1, {"trace_id": "0af7651916cd43dd8448eb211c80319c"})
    health.report("kafka", Readiness.DEGRADED, "no broker", "start it")
    async with (
        HealthServer(health, registry, host="127.0.0.1", port=0) as server,
        aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as client,
    ):
        assert (await client.get("/livez")).status == 200
        ready = await client.get("/readyz")
        assert (ready.status, (await ready.json())["status"]) == (200, "degraded")
        health.report("ledger", Readiness.NOT_READY, "gone", "start it")
        assert (await client.get("/readyz")).status == 503
        plain = await (await client.get("/metrics")).text()
        accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
        openmetrics = await client.get("/metrics", headers=accept)
        assert "trace_id" not in plain
        assert "trace_id" in await openmetrics.text()
        assert openmetrics.headers["Content-Type"].startswith("application/openmetrics-text")


async def test_an_address_in_use_is_a_settings_error() -> None:
    async with HealthServer(Health(), new_registry("relay"), host="127.0.0.1", port=0) as first:
        second = HealthServer(Health(), new_registry("relay"), host="127.0.0.1", port=first.port)
        with pytest.raises(SettingsError, match="cannot listen"):
            await second.__aenter__()
