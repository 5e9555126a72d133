"""Every error this product raises on purpose, grouped by what is known when it is raised.

The docstring of a class is its default message. Expected races (a stale claim) are values, not errors.
"""

from __future__ import annotations


class OutboxError(Exception):
    """Something went wrong in outbox-relay."""

    exit_code = 1

    def __init__(self, message: str | None = None, *, hint: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())
        self.hint = hint


class UsageError(OutboxError):
    """The command line, a setting or a file is not usable as given."""

    exit_code = 2


class SettingsError(UsageError):
    """A setting is missing or wrong."""


class ContractError(UsageError):
    """A provider contract or the providers file is wrong."""


class NotFound(OutboxError):
    """There is no such thing in this ledger."""

    exit_code = 3


class Refused(OutboxError):
    """The ledger refused, and nothing changed."""

    exit_code = 4


class IntentConflict(Refused):
    """The idempotency key exists with another intent."""


class IllegalTransition(Refused):
    """The action is not in a state that allows this."""


class DependencyDown(OutboxError):
    """PostgreSQL, Kafka or Connect cannot be reached."""

    exit_code = 5


class LedgerUnavailable(DependencyDown):
    """The ledger cannot be reached or does not accept writes."""


class LedgerMismatch(OutboxError):
    """The ledger's schema version, environment or provider rows do not fit this program."""

    exit_code = 6


class ConditionNotMet(OutboxError):
    """The condition that was waited for or checked does not hold."""

    exit_code = 6


class NotPossibleHere(ConditionNotMet):
    """What was asked for needs something that this machine does not have; the hint names it."""


class InvariantBroken(OutboxError):
    """An invariant of this program does not hold; it stops rather than guess."""
