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

CLAIM_MAX = 100
"""Most actions of one account in one claim: a short transaction, and sending starts while the next claim runs."""
ROOM_SHARE = 4
"""A busy account is asked for as soon as one slot in four is free; fewer wait a moment for more."""


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

    def __init__(self, gates: Mapping[AccountKey, AccountGate], *, hold_s: float = 0.0) -> None:
        """`hold_s`: how long a few free slots of a busy account wait for more, so that one claim serves them all."""
        self.gates = dict(gates)
        self._hold_s = hold_s
        self._held: dict[AccountKey, float] = {}
        self._hungry: set[AccountKey] = set()

    def wake(self, accounts: Iterable[AccountKey] | None = None) -> bool:
        """These accounts (all, by default) may have due work. Unknown ones are not ours; True when any is."""
        woken = self.gates.keys() if accounts is None else self.gates.keys() & set(accounts)
        self._hungry |= woken
        return bool(woken)

    def hungry(self, account: AccountKey) -> bool:
        """True while the account may have work that it has not been asked for."""
        return account in self._hungry

    def worth_a_look(self, account: AccountKey) -> bool:
        """True when a slot that was freed may lead to a claim: what is held already is claimed when its time comes."""
        if account not in self._hungry:
            return False
        gate = self.gates[account]
        return account not in self._held or (gate.limits.slots - gate.in_flight) * ROOM_SHARE >= gate.limits.slots

    def take(self, now: float) -> list[Order]:
        """Demands for every account that may have work and has room; their slots are taken from here on."""
        orders = []
        for account in sorted(self._hungry):
            gate = self.gates[account]
            slots = min(gate.room(now), CLAIM_MAX)
            if not self._hold(account, slots, now) and slots:
                # Forgotten before the claim: a wake-up that comes while it runs must not be lost.
                self._hungry.discard(account)
                orders.append(Order(Demand(*account, slots), gate.start(slots, now)))
        return orders

    def _hold(self, account: AccountKey, room: int, now: float) -> bool:
        """True while a few free slots of a busy account should wait for more."""
        gate = self.gates[account]
        few = 0 < room * ROOM_SHARE < gate.limits.slots and gate.in_flight > 0
        if few and now - self._held.setdefault(account, now) < self._hold_s:
            return True
        self._held.pop(account, None)
        return False

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
        """Seconds until a hungry account may be claimed for by the passing of time alone."""
        waits = [wait for account in self._hungry if (wait := self.gates[account].opens_in(now)) is not None]
        waits += [max(0.0, since + self._hold_s - now) for since in self._held.values()]
        return min(waits, default=None)
