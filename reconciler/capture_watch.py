"""Keeps an eye on the connector that feeds the status topic: a failed task is restarted, and people can see it.

One reconciler after another may do so at the same time; restarting a task that runs again changes nothing. Nothing is
dispatched or decided here: with the pipeline down everything goes on from the ledger.
"""

from __future__ import annotations

from outbox_relay.capture.connect_api import ConnectApi, ConnectorStatus
from outbox_relay.capture.watch import ConnectorWatch
from outbox_relay.telemetry import Health, Logger, Readiness, ReconcilerMetrics


def watch_connector(url: str, name: str, *, metrics: ReconcilerMetrics, health: Health, log: Logger) -> ConnectorWatch:
    """A watch over one connector that reports to readiness, metrics and log. Raises SettingsError for a bad address."""
    last: list[str | None] = ["not looked at yet"]

    def tell(_status: ConnectorStatus | None, trouble: str | None) -> None:
        metrics.connector_task_running.set(0 if trouble else 1)
        if trouble is None:
            health.report("connector", Readiness.READY, f"{name} and its task run")
        else:
            health.report(
                "connector",
                Readiness.DEGRADED,
                f"{trouble}; the status topic is late, dispatch goes on from the ledger",
                "outbox connect status says why; outbox connect recover after a lost slot",
            )
        if trouble != last[0]:
            log.warning("connector_trouble", trouble=trouble) if trouble else log.info("connector_runs")
            last[0] = trouble

    return ConnectorWatch(ConnectApi(url), name, on_status=tell)
