"""`outbox doctor --basic`: is every part there, and do they fit? Each finding says what to do."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import typer

from outbox_relay.capture.connect_api import ConnectApi
from outbox_relay.capture.topic import partitions_of
from outbox_relay.cli.output import show_rows
from outbox_relay.errors import ConditionNotMet, OutboxError
from outbox_relay.ledger.accounts import differences
from outbox_relay.ledger.pool import Ledger, open_ledger
from outbox_relay.providers.accounts import load_accounts
from outbox_relay.providers.registry import load_contracts
from outbox_relay.settings import Settings, Wakeups, load_settings, suspicious_variables

_WAL_WARNING_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: ok, warning or failure, and what to do."""

    check: str
    result: str
    detail: str
    todo: str | None = None


def doctor_command(
    basic: bool = typer.Option(True, "--basic/--full", help="Only the basic checks exist so far."),
) -> None:
    """Check settings, ledger, providers, capture and Kafka; exit 6 when something fails."""
    if not basic:
        raise ConditionNotMet("only the basic checks exist so far", hint="run: outbox doctor --basic")
    findings = asyncio.run(_examine(load_settings()))
    show_rows(findings, ("check", "result", "detail", "todo"), empty="nothing was checked")
    failed = [finding.check for finding in findings if finding.result == "failure"]
    if failed:
        raise ConditionNotMet(f"{len(failed)} of {len(findings)} checks failed: {', '.join(failed)}")


async def _examine(settings: Settings) -> list[Finding]:
    findings = [
        Finding("settings", "warning", f"{name} is not a setting", f"did you mean {meant}?")
        for name, meant in suspicious_variables(os.environ).items()
    ]
    try:
        async with open_ledger(
            settings.dsn(), environment=settings.needed_environment(), application="outbox doctor", max_size=1
        ) as ledger:
            identity = await ledger.identity()
            findings.append(Finding("ledger", "ok", f"{identity.environment}, version {identity.schema_version}"))
            findings.append(await _guarded("providers", lambda: _providers(settings, ledger)))
            if settings.wakeups is Wakeups.KAFKA:
                findings += await _capture(settings, ledger)
    except OutboxError as error:
        findings.append(Finding("ledger", "failure", str(error), error.hint))
    if settings.wakeups is Wakeups.KAFKA:
        findings.append(await _guarded("connector", lambda: _connector(settings)))
        findings.append(await _guarded("topic", lambda: _topic(settings)))
    return findings


async def _guarded(check: str, look: Callable[[], Awaitable[Finding]]) -> Finding:
    try:
        return await look()
    except OutboxError as error:
        return Finding(check, "failure", str(error), error.hint)


async def _providers(settings: Settings, ledger: Ledger) -> Finding:
    contracts = load_contracts(settings.contracts_dir)
    accounts = load_accounts(settings.needed_providers_file(), contracts, os.environ)
    rows = [row for account in accounts for row in account.rows()]
    found = differences(await ledger.accounts.rows(), rows)
    if found:
        return Finding("providers", "failure", "; ".join(found), "run: outbox providers apply")
    return Finding("providers", "ok", f"{len(rows)} operations, as in the providers file")


async def _capture(settings: Settings, ledger: Ledger) -> list[Finding]:
    try:
        health = await ledger.reports.capture_health(settings.slot_name)
    except OutboxError as error:
        return [Finding("capture", "failure", str(error), "run the doctor with the operator's role")]
    findings = []
    if health.wal_level != "logical":
        todo = "alter system set wal_level = 'logical'; then restart PostgreSQL"
        findings.append(Finding("wal_level", "failure", health.wal_level, todo))
    if not health.publication:
        findings.append(Finding("publication", "failure", "outbox_events is missing", "run: outbox migrate"))
    if health.slot_active is None:
        findings.append(Finding("slot", "failure", f"no slot {settings.slot_name}", "run: outbox connect apply"))
    elif not health.slot_active or health.slot_wal_status in ("lost", "unreserved"):
        detail = f"active: {health.slot_active}, {health.slot_wal_status}"
        findings.append(Finding("slot", "failure", detail, "run: outbox connect status"))
    if (health.slot_retained_bytes or 0) > _WAL_WARNING_BYTES:
        detail = f"the slot keeps {(health.slot_retained_bytes or 0) >> 20} MiB of WAL"
        findings.append(Finding("wal", "warning", detail, "is Kafka Connect running and reading?"))
    if health.max_slot_wal_keep_size in ("-1", "-1MB"):
        todo = "set max_slot_wal_keep_size, so that a lost connector cannot fill the disk (dispatch goes on without it)"
        findings.append(Finding("wal", "warning", "max_slot_wal_keep_size is unlimited", todo))
    return findings or [Finding("capture", "ok", f"publication and slot {settings.slot_name} are there and read")]


async def _connector(settings: Settings) -> Finding:
    api = ConnectApi(settings.needed_connect_url())
    status = await asyncio.to_thread(api.status, settings.connector_name)
    if status is None:
        return Finding("connector", "failure", f"no connector {settings.connector_name}", "run: outbox connect apply")
    if not status.runs:
        trouble = "; ".join(task.trouble for task in status.failed) or status.state
        return Finding("connector", "failure", trouble, "run: outbox connect apply, which restarts a failed task")
    return Finding("connector", "ok", f"{status.name} and its task run")


async def _topic(settings: Settings) -> Finding:
    found = await asyncio.to_thread(
        lambda: partitions_of(
            settings.topic,
            bootstrap_servers=settings.needed_bootstrap_servers(),
            options=settings.kafka_options,
        )
    )
    if found is None:
        return Finding("topic", "failure", f"no topic {settings.topic}", "run: outbox connect apply")
    if found != settings.topic_partitions:
        todo = "set OUTBOX_TOPIC_PARTITIONS to what exists: a changed number breaks the order per action"
        return Finding("topic", "warning", f"{found} partitions, {settings.topic_partitions} configured", todo)
    return Finding("topic", "ok", f"{settings.topic}, {found} partitions")
