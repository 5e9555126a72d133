"""`outbox actions`: what became of an action. Never shows a payload or a recipient."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict

import typer

from outbox_relay.cli.output import say, show_fields, show_json, show_rows, wants_json
from outbox_relay.errors import ConditionNotMet
from outbox_relay.ledger.pool import Ledger, open_ledger
from outbox_relay.ledger.records import ActionSummary
from outbox_relay.settings import load_settings

app = typer.Typer(no_args_is_help=True, help="Actions and what is known of them (as an operator).")

SETTLED = ("accepted", "refused", "not_sent", "closed_unproven_do_not_resend")
"""Every advice after which nothing more happens by itself."""

_COLUMNS = ("action_id", "provider", "operation", "execution_state", "delivery_state", "advice", "attempt_count",
            "updated_at")  # fmt: skip


@asynccontextmanager
async def operators_ledger(command: str) -> AsyncIterator[Ledger]:
    """Open the ledger with the settings of this run."""
    settings = load_settings()
    async with open_ledger(
        settings.dsn(), environment=settings.needed_environment(), application=f"outbox {command}", max_size=1
    ) as ledger:
        yield ledger


@app.command("list")
def list_command(
    provider: str | None = typer.Option(None, help="Only this provider's."),
    execution: str | None = typer.Option(None, help="Only this execution_state, such as on_hold."),
    delivery: str | None = typer.Option(None, help="Only this delivery_state, such as delivery_unknown."),
    created_by: str | None = typer.Option(None, help="Only those of this database role."),
    limit: int = typer.Option(50, min=1, max=10_000, help="At most this many, newest first."),
) -> None:
    """List actions, newest first."""

    async def run() -> list[ActionSummary]:
        async with operators_ledger("actions list") as ledger:
            return await ledger.reports.actions(
                provider=provider, execution_state=execution, delivery_state=delivery, created_by=created_by,
                limit=limit,
            )  # fmt: skip

    show_rows(asyncio.run(run()), _COLUMNS, empty="no such actions")


@app.command("show")
def show_command(action: str = typer.Argument(help="An action id or an idempotency key.")) -> None:
    """Show one action: its three facts, every change, and the evidence."""
    asyncio.run(_show(action))


async def _show(key_or_id: str) -> None:
    async with operators_ledger("actions show") as ledger:
        found = await ledger.reports.action(key_or_id)
        history = await ledger.reports.history(found.action_id)
    if wants_json():
        show_json(
            {"action": asdict(found), "events": history.events, "evidence": [asdict(e) for e in history.evidence]}
        )
        return
    show_fields(found, title=f"action {found.action_id}")
    say("events")
    show_rows(history.events, ("sequence", "event", "execution_state", "delivery_state", "attempt", "reason",
                               "occurred_at"), empty="no events are retained")  # fmt: skip
    say("evidence")
    show_rows(history.evidence, ("kind", "proves", "reason", "attempt", "phase", "status", "provider_id",
                                 "recorded_at"), empty="none beside a plain acceptance")  # fmt: skip


@app.command("wait")
def wait_command(
    action: str = typer.Argument(help="An action id or an idempotency key."),
    timeout_s: float = typer.Option(60.0, "--timeout-s", min=0, help="Give up after this many seconds."),
) -> None:
    """Wait until an action is settled; exit 6 when it is not settled in time, or not accepted."""
    found = asyncio.run(_wait(action, timeout_s))
    if wants_json():
        show_json(found)
    else:
        show_fields(found, title=f"action {found.action_id}")
    if found.advice not in SETTLED:
        raise ConditionNotMet(f"not settled after {timeout_s:g} s: {found.advice}", hint="outbox actions show says why")
    if found.advice != "accepted":
        raise ConditionNotMet(f"settled, and not accepted: {found.advice}", hint="outbox actions show says why")


async def _wait(key_or_id: str, timeout_s: float) -> ActionSummary:
    deadline = time.monotonic() + timeout_s
    pause_s = 0.1
    async with operators_ledger("actions wait") as ledger:
        while True:
            found = await ledger.reports.action(key_or_id)
            left_s = deadline - time.monotonic()
            if found.advice in SETTLED or left_s <= 0:
                return found
            await asyncio.sleep(min(pause_s, left_s))
            pause_s = min(pause_s * 1.5, 2.0)
