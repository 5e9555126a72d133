"""What to ask the ledger for: which accounts may have due work and how much of it they can take now.

Pure: the clock is an argument, nothing here does I/O. A claim means "being sent now", so nothing is ever asked for
beyond a free slot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from outbox_relay.dispatch.limits import AccountGate, Permit
from outbox_relay.ledger.records import Claim, Demand

AccountKey = tuple[str, str]
"""(provider, account)."""

CLAIM_MAX = 200
"""Most actions of one account in one claim, so that a claim stays a short transaction."""


@dataclass(frozen=True, slots=True)
class Order:
    """A demand with the slots that were taken for it."""

    demand: Demand
    permit: Permit

    @property
    def account(self) -> AccountKey:
        """Whose slots these are."""
        return self.demand.provider, self.demand.account


class Demands:
    """The accounts' gates, and which accounts are worth asking for."""

    def __init__(self, gates: Mapping[AccountKey, AccountGate]) -> None:
        self.gates = dict(gates)
        self._hungry: set[AccountKey] = set()

    def wake(self, accounts: Iterable[AccountKey] | None = None) -> bool:
        """These accounts (all, by default) may have due work. Unknown ones are not ours; True when any is."""
        woken = self.gates.keys() if accounts is None else self.gates.keys() & set(accounts)
        self._hungry |= woken
        return bool(woken)

    def hungry(self, account: AccountKey) -> bool:
        """True while the account may have work that it has not been asked for."""
        return account in self._hungry

    def take(self, now: float) -> list[Order]:
        """Demands for every account that may have work and has room; their slots are taken from here on."""
        orders = []
        for account in sorted(self._hungry):
            gate = self.gates[account]
            slots = min(gate.room(now), CLAIM_MAX)
            if slots:
                # Forgotten before the claim: a wake-up that comes while it runs must not be lost.
                self._hungry.discard(account)
                orders.append(Order(Demand(*account, slots), gate.start(slots, now)))
        return orders

    def settle(self, orders: Sequence[Order], claims: Iterable[Claim]) -> None:
        """Give back the slots that got nothing; an account that got all it asked for may have more."""
        got: dict[AccountKey, int] = {}
        for claim in claims:
            key = (claim.provider, claim.account)
            got[key] = got.get(key, 0) + 1
        for order in orders:
            received = got.get(order.account, 0)
            self.gates[order.account].give_back(order.demand.slots - received, order.permit)
            if received >= order.demand.slots:
                self._hungry.add(order.account)

    def opens_in(self, now: float) -> float | None:
        """Seconds until a hungry account may have room by the passing of time alone."""
        waits = [wait for account in self._hungry if (wait := self.gates[account].opens_in(now)) is not None]
        return min(waits, default=None)
