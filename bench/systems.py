"""What is measured, each as a command line and two questions to its database. Adding a peer is adding an entry here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
PEERS_PYTHON = ROOT / ".venv-bench" / "bin" / "python"
RIVER_PROGRAM = ROOT / "build" / "bench" / "river"


@dataclass(frozen=True, slots=True)
class System:
    """One measured system."""

    name: str
    title: str
    command: tuple[str, ...]
    waiting: str
    """SQL: how many actions are not stored yet. Zero before anything was enqueued."""
    stored: str
    """SQL: rows of (key, seconds since the epoch at which the result was stored)."""
    environ: dict[str, str] = field(default_factory=dict)
    kafka: bool = False
    share: float = 1.0
    """Part of the backlog that it gets, so that a slow one does not take all evening."""
    arrives_at: str = "provider"
    """provider, or consumer for the loop that calls nobody."""
    ready_event: str = "ready"
    needs: str = ""
    """What is missing when it cannot run; empty when it can."""


def _python(module: str, interpreter: Path | str = sys.executable) -> tuple[str, ...]:
    return (str(interpreter), "-m", module)


_PRODUCT_WAITING = "select count(*) from outbox.work_queue where kind = 'dispatch' and due_at <= now()"
_PRODUCT_STORED = (
    "select a.idempotency_key, extract(epoch from e.occurred_at)::float8 from outbox.action_events e"
    " join outbox.outbound_actions a using (action_id) where e.sequence = 3"
)
_LIMIT_WAITING = "select count(*) from limit_actions where state < 2"
_LIMIT_STORED = "select idempotency_key, extract(epoch from stored_at)::float8 from limit_actions where state = 2"
_RESULTS_WAITING = "select (select count(*) from orders) - (select count(*) from results)"
_RESULTS_STORED = "select key, extract(epoch from stored_at)::float8 from results"


def _needs_peers() -> str:
    return "" if PEERS_PYTHON.exists() else "the peers' environment (.venv-bench) is not installed"


def build_river() -> str:
    """Build River's program; return what is missing, empty when it is there."""
    if shutil.which("go") is None:
        return "Go is not installed"
    RIVER_PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["go", "build", "-o", str(RIVER_PROGRAM), "."],
        cwd=ROOT / "bench" / "river",
        env={**os.environ, "GOFLAGS": "-buildvcs=false"},
        capture_output=True,
        text=True,
        check=False,
    )
    return f"go build failed: {done.stderr.strip()[-300:]}" if done.returncode else ""


def limits() -> list[System]:
    """The bare loops."""
    common = {"command": _python("bench.limit"), "waiting": _LIMIT_WAITING, "stored": _LIMIT_STORED}
    return [
        System("limit", "bare loop, same events, aiohttp", **common, environ={"BENCH_HTTP": "aiohttp"}),  # type: ignore[arg-type]
        System("limit_own", "bare loop, same events, the product's client", **common, environ={"BENCH_HTTP": "own"}),  # type: ignore[arg-type]
        System("limit_raw", "bare loop, same events, raw HTTP", **common, environ={"BENCH_HTTP": "raw"}),  # type: ignore[arg-type]
        System("limit_narrow", "bare loop, narrow events, aiohttp", **common, environ={"BENCH_EVENTS": "narrow"}),  # type: ignore[arg-type]
    ]


def products() -> list[System]:
    """This product in both modes, and the consumer that shows what its pipeline costs without it."""
    command = _python("bench.product")
    return [
        System("ledger", "outbox-relay, WAKEUPS=ledger", command, _PRODUCT_WAITING, _PRODUCT_STORED),
        System(
            "kafka",
            "outbox-relay through Debezium and Kafka",
            command,
            _PRODUCT_WAITING,
            _PRODUCT_STORED,
            kafka=True,
            ready_event="kafka_ready",
        ),
        System(
            "raw_cdc",
            "Debezium to a bare consumer",
            _python("bench.cdc"),
            _PRODUCT_WAITING,
            _PRODUCT_STORED,
            kafka=True,
            arrives_at="consumer",
        ),
    ]


def peers(river_needs: str) -> list[System]:
    """What a user would pick instead."""
    needs = _needs_peers()
    return [
        System(
            "river",
            "River 0.51 (Go), tuned",
            (str(RIVER_PROGRAM),),
            "select count(*) from river_job where finalized_at is null",
            "select args ->> 'key', extract(epoch from finalized_at)::float8 from river_job where state = 'completed'",
            needs=river_needs,
        ),
        System(
            "pgqueuer",
            "PgQueuer 1.6",
            _python("bench.peers.pgqueuer_peer", PEERS_PYTHON),
            _RESULTS_WAITING,
            _RESULTS_STORED,
            needs=needs,
        ),
        System(
            "procrastinate",
            "Procrastinate 3.10",
            _python("bench.peers.procrastinate_peer", PEERS_PYTHON),
            _RESULTS_WAITING,
            _RESULTS_STORED,
            share=0.2,
            needs=needs,
        ),
        System(
            "dbos",
            "DBOS 3.4, polling every 0.1 s",
            _python("bench.peers.dbos_peer", PEERS_PYTHON),
            "select count(*) from dbos.workflow_status where status in ('ENQUEUED', 'PENDING')",
            "select workflow_uuid, updated_at / 1000.0::float8 from dbos.workflow_status where status = 'SUCCESS'",
            share=0.1,
            needs=needs,
        ),
    ]


def everything(river_needs: str) -> dict[str, System]:
    """All systems by name."""
    return {system.name: system for system in (*limits(), *products(), *peers(river_needs))}
