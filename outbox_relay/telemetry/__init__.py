"""What both programs say about themselves: metrics, logs and the health pages.

A payload, a recipient, a key or a secret must never get into any of the three, and no metric, label or attempt field
is named anywhere else.
"""

from outbox_relay.telemetry.health import Health, HealthServer, Readiness
from outbox_relay.telemetry.ledger_series import LedgerSeries, LedgerSnapshot, ProviderCounts
from outbox_relay.telemetry.logs import (
    AttemptLine,
    Logger,
    configure_logging,
    describe_error,
    get_logger,
    log_attempt,
    log_failure,
)
from outbox_relay.telemetry.metrics import AttemptMetrics, ReconcilerMetrics, RelayMetrics, child, new_registry, release

__all__ = [
    "AttemptLine",
    "AttemptMetrics",
    "Health",
    "HealthServer",
    "LedgerSeries",
    "LedgerSnapshot",
    "Logger",
    "ProviderCounts",
    "Readiness",
    "ReconcilerMetrics",
    "RelayMetrics",
    "child",
    "configure_logging",
    "describe_error",
    "get_logger",
    "log_attempt",
    "log_failure",
    "new_registry",
    "release",
]
