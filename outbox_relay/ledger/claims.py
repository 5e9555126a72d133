"""Claims: who may send what, and until when. The relay's questions to the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, LiteralString

from outbox_relay.ledger.records import Claim, ClaimToken, Demand
from outbox_relay.ledger.session import Row, Session, as_json, milliseconds


def claim_from(row: Row | dict[str, Any]) -> Claim:
    """Build a Claim from a row of outbox.claimed_action."""
    return Claim(**{name: row[name] for name in Claim.__dataclass_fields__})


SELECT_CLAIMS: Final[LiteralString] = (
    "select action_id, claim_token, attempt, provider, account, operation, mode, idempotency_key, wire_key, recipient,"
    " payload, contract_version, base_url, account_identity, ordering_key, created_at, first_attempt_at, due_age_s,"
    " traceparent "
)
"""The columns in the order of Claim's fields: rows become claims by position, without a dictionary in between."""


class Claims:
    """One method, one round trip."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def claim(
        self, demands: Sequence[Demand], *, token: ClaimToken, lease_s: float, deadline_s: float, worker: str
    ) -> list[Claim]:
        """Claim what is due, at most `slots` per account, under `token` for `lease_s`.

        After a LedgerUnavailable the claim may have been committed: ask `recall` with the same token.
        """
        return await self._session.made(
            Claim,
            SELECT_CLAIMS + "from outbox.claim_actions(%s, %s, %s, %s, %s)",
            [as_json(demands), token, milliseconds(lease_s), milliseconds(deadline_s), worker],
        )

    async def recall(self, token: ClaimToken) -> list[Claim]:
        """Return what is ours under this token, after waiting for a claim whose COMMIT was lost to end."""
        return await self._session.made(Claim, SELECT_CLAIMS + "from outbox.recall_claims(%s)", [token])

    async def sweep_expired(self, limit: int = 500, *, actor: str = "relay") -> int:
        """Turn dispatches whose claim expired into delivery_unknown; return how many."""
        return int(await self._session.value("select outbox.sweep_expired_claims(%s, %s)", [limit, actor]))

    async def next_due_in(self, accounts: Sequence[tuple[str, str]]) -> float | None:
        """Return the seconds until the earliest due action, 0 when one is due, None when nothing is open."""
        pairs = [{"provider": provider, "account": account} for provider, account in accounts]
        found = await self._session.value("select outbox.next_dispatch_in(%s)", [as_json(pairs)])
        return None if found is None else float(found)

    async def probe_write(self) -> None:
        """Raise LedgerUnavailable when an outcome could not be stored now: read-only, or a right is missing."""
        await self._session.value(
            "select outbox.probe_write()::text, (select count(*) from outbox.record_outcomes('[]'))"
        )
