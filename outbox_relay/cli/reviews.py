"""`outbox reviews`: what awaits a person, with the request and the evidence that decide it."""

from __future__ import annotations

import asyncio
from dataclasses import asdict

import typer

from outbox_relay.cli.actions import operators_ledger
from outbox_relay.cli.output import say, show_fields, show_json, show_rows, wants_json
from outbox_relay.ledger.records import Review
from outbox_relay.ledger.reviews import ReviewDetail

app = typer.Typer(no_args_is_help=True, help="The operator's queue (as an operator).")


@app.command("list")
def list_command(
    every: bool = typer.Option(False, "--all", help="Also those that are closed."),
    owner: str | None = typer.Option(None, help="Only those of this owner."),
    limit: int = typer.Option(100, min=1, max=10_000, help="At most this many, the most urgent first."),
) -> None:
    """List reviews, the most urgent first."""

    async def run() -> list[Review]:
        async with operators_ledger("reviews list") as ledger:
            return await ledger.reviews.list(open_only=not every, owner=owner, limit=limit)

    columns = ("review_id", "owner", "due_at", "provider", "operation", "delivery_state", "reason", "next_step")
    show_rows(asyncio.run(run()), columns, empty="nothing awaits a person")


@app.command("show")
def show_command(review_id: int = typer.Argument(help="The number of the review.")) -> None:
    """Show one review: what was asked for (recipient and content included), every attempt, and all evidence."""

    async def run() -> ReviewDetail:
        async with operators_ledger("reviews show") as ledger:
            return await ledger.reviews.show(review_id)

    detail = asyncio.run(run())
    if wants_json():
        show_json(asdict(detail))
        return
    show_fields(detail.review, title=f"review {review_id}")
    show_fields(detail.request, title="request")
    say("events")
    show_rows(detail.events, ("sequence", "event", "delivery_state", "attempt", "reason", "occurred_at"),
              empty="no events are retained")  # fmt: skip
    say("evidence")
    show_rows(detail.evidence, ("kind", "proves", "reason", "attempt", "phase", "status", "provider_id", "excerpt",
                                "recorded_at"), empty="none")  # fmt: skip
