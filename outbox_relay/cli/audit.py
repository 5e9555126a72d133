"""`outbox audit`: proves that the ledger adds up, or names what does not. Changes nothing; may run beside live work."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import typer

from outbox_relay.cli.output import say, show_json, show_rows, wants_json
from outbox_relay.errors import ConditionNotMet
from outbox_relay.ledger.audit import Audit, AuditFinding, AuditStep
from outbox_relay.ledger.pool import open_ledger
from outbox_relay.settings import load_settings

STATEMENT_TIMEOUT_S = 600.0
"""Counting a large ledger in one snapshot takes longer than anything that the programs do."""
SHOWN_MAX = 1000


@dataclass(slots=True)
class Verdict:
    """What was looked at, and what does not hold; more findings than can be shown are only counted."""

    looked: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    findings: list[AuditFinding] = field(default_factory=list)

    def add(self, step: AuditStep) -> None:
        """Take in one step."""
        self.looked[step.part] += step.looked
        self.kinds.update(finding.finding for finding in step.findings)
        self.findings += step.findings[: SHOWN_MAX - len(self.findings)]


def audit_command(
    batch: int = typer.Option(1000, min=1, max=100_000, help="Actions per step; each step is one short query."),
) -> None:
    """Check the whole ledger (as an operator); exit 6 when something does not hold.

    Created equals the sum of all states in one snapshot; every retained history replays to its action's row; the queue
    holds exactly what is open; every unknown and every hold has an owner or a due time; every key has its action.
    """
    verdict = asyncio.run(_audit(batch))
    if wants_json():
        show_json({"looked": verdict.looked, "kinds": verdict.kinds, "findings": verdict.findings})
    elif verdict.findings:
        show_rows(verdict.findings, ("finding", "subject", "detail"), empty="")
    looked = f"{verdict.looked['actions']} actions and {verdict.looked['keys']} keys"
    if verdict.kinds:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(verdict.kinds.items()))
        raise ConditionNotMet(
            f"{verdict.kinds.total()} findings in {looked}: {kinds}",
            hint="no function of the product leads here: find out who wrote to the tables, or what was restored, "
            "before the relay goes on; docs/operating.md explains each finding",
        )
    say(f"everything holds: {looked}")


async def _audit(batch: int) -> Verdict:
    settings = load_settings()
    verdict = Verdict()
    async with open_ledger(
        settings.dsn(),
        environment=settings.needed_environment(),
        application="outbox audit",
        max_size=1,
        statement_timeout_s=STATEMENT_TIMEOUT_S,
    ) as ledger:
        async for step in _steps(ledger.audit, batch):
            verdict.add(step)
    return verdict


async def _steps(audit: Audit, batch: int) -> AsyncIterator[AuditStep]:
    yield await audit.totals()
    for walk in (audit.actions(batch), audit.keys(10 * batch)):
        async for step in walk:
            yield step
