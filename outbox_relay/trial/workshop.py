"""What the simulated provider does with a request that it understood: the effect, the book, the answer's meaning.

It opens no connection. An effect is in the book before anybody can be told about it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from outbox_relay.providers.contract import Operation, ProviderContract
from outbox_relay.trial.book import BookWriter
from outbox_relay.trial.dialect import Call, Dialect, Listing
from outbox_relay.trial.faults import Fault, FaultPlan, FaultRule
from outbox_relay.trial.memory import Answer, KeyMemory, ProviderClock, Scope, Shelf, Standing, Thing
from outbox_relay.trial.shapes import as_answer, shape_of


class Meaning(StrEnum):
    """What an answer says, in the book's words."""

    ACCEPTED = "accepted"
    REPLAYED = "replayed"
    REFUSED = "refused"
    THROTTLED = "throttled"
    SERVER_ERROR = "server_error"
    IN_PROGRESS = "in_progress"
    MISMATCH = "mismatch"
    REDIRECT = "redirect"
    UNAUTHORISED = "unauthorised"
    LISTED = "listed"
    SILENCE = "silence"
    """Nothing was said."""


@dataclass(frozen=True, slots=True)
class Said:
    """An answer and what it means."""

    meaning: Meaning
    answer: Answer


class Workshop:
    """One provider: its memory, its shelf of things made, its book."""

    def __init__(self, contract: ProviderContract, book: Path, *, seed: int) -> None:
        self.contract = contract
        self.clock = ProviderClock()
        self.faults = FaultPlan(seed)
        self.dialect = Dialect(contract)
        self.shelf = Shelf()
        self.book = BookWriter(book)
        self.work_s = 0.0
        """How long the provider works before the effect; the key is in progress meanwhile."""
        self._shape = shape_of(contract, self.clock)
        self.listing = Listing(self.shelf, self._shape, self.clock)
        self._memories = {name: _memory(operation) for name, operation in contract.operations.items()}

    def close(self) -> None:
        """Close the book."""
        self.book.close()

    def forget(self, call_name: str, account: str, key: str) -> None:
        """The object of a natural key is gone (a resolved alert): the key is as good as new."""
        self._memories[call_name].forget((account, call_name, key))

    def write_request(self, call: Call, fault: Fault, *, complete: bool = True) -> int:
        """Book a request and return its number."""
        return self.book.request(
            kind=call.kind,
            operation=call.name,
            method=call.method,
            url=call.url,
            ref=call.ref,
            wire_key=call.wire_key,
            account=call.account,
            body=call.body,
            complete=complete,
            fault=None if fault is Fault.NONE else fault.value,
        )

    def before_work(self, call: Call, rule: FaultRule | None) -> Said | None:
        """What is said without touching keys or doing anything; None to go on."""
        if call.account == "":
            return Said(Meaning.UNAUTHORISED, as_answer(401, {"message": "credentials are missing"}))
        match rule.fault if rule is not None else Fault.NONE:
            case Fault.REFUSE:
                return Said(Meaning.REFUSED, _overridden(self._shape.refused(call.operation), rule))
            case Fault.THROTTLE:
                retry_after = rule.retry_after if rule is not None else None
                return Said(Meaning.THROTTLED, _overridden(self._shape.throttled(retry_after), rule))
            case Fault.SERVER_ERROR:
                return Said(Meaning.SERVER_ERROR, _overridden(_failure(), rule))
            case Fault.REDIRECT:
                location = (rule.location if rule is not None else None) or "/elsewhere"
                answer = Answer(rule.status or 307 if rule is not None else 307, b"", {"Location": location})
                return Said(Meaning.REDIRECT, answer)
            case Fault.IN_PROGRESS:
                return Said(Meaning.IN_PROGRESS, self._shape.in_progress(call.operation))
            case Fault.MISMATCH:
                return Said(Meaning.MISMATCH, self._shape.mismatch(call.operation))
            case _:
                return None

    def recognise(self, call: Call) -> Said | None:
        """What the key memory says; None for a fresh key, which is in progress from now on."""
        if call.wire_key is None:
            return None
        memory = self._memories[call.name]
        standing, first = memory.begin(_scope(call, call.wire_key), call.body_sha256, self.clock.now())
        match standing:
            case Standing.FRESH:
                return None
            case Standing.MISMATCH:
                return Said(Meaning.MISMATCH, self._shape.mismatch(call.operation))
            case Standing.IN_PROGRESS:
                return Said(Meaning.IN_PROGRESS, self._shape.in_progress(call.operation))
            case Standing.REPLAYED if first is not None:
                marker = call.operation.idempotency.replayed
                headers = first.headers | ({marker.header: marker.value} if marker is not None else {})
                return Said(Meaning.REPLAYED, Answer(first.status, first.body, headers, first.provider_id))
            case _:
                raise AssertionError(standing)

    def do(self, call: Call, request: int, rule: FaultRule | None) -> Said:
        """Do the thing, book it, remember it, and say what is true."""
        if rule is not None and rule.fault is Fault.SERVER_ERROR_CACHED:
            said = Said(Meaning.SERVER_ERROR, _overridden(_failure(), rule))
            self._remember(call, said.answer)
            return said
        now = self.clock.now()
        number = len(self.shelf) + 1
        ref = call.ref or f"body:{call.body_sha256[:16]}"
        provider_id = self._shape.new_id(number, now, ref, call.document)
        thing = Thing(number, provider_id, ref, call.name, call.account, dict(call.values), call.document, now)
        self.book.effect(
            operation=call.name, ref=ref, provider_id=provider_id, request=request, body=call.body, account=call.account
        )
        self.shelf.add(thing)
        made = self._shape.made(call.operation, thing)
        answer = Answer(made.status, made.body, made.headers, provider_id)
        if rule is not None and rule.fault is Fault.SERVER_ERROR_CACHED_AFTER_EFFECT:
            said = Said(Meaning.SERVER_ERROR, _overridden(_failure(), rule))
            self._remember(call, said.answer)
            return said
        self._remember(call, answer)
        return Said(Meaning.ACCEPTED, answer)

    def look_up(self, call: Call, origin: str) -> Said:
        """One page of the contract's lookup."""
        return Said(Meaning.LISTED, self.listing.answer(call, origin))

    def _remember(self, call: Call, answer: Answer) -> None:
        if call.wire_key is not None:
            self._memories[call.name].finish(_scope(call, call.wire_key), answer, self.clock.now())


def _memory(operation: Operation) -> KeyMemory:
    rule = operation.idempotency
    natural = rule.kind == "natural"
    published = rule.retention_s if isinstance(rule.retention_s, float) and not natural else None
    # A natural key merges whatever body comes, and lives as long as its object.
    return KeyMemory(retention_s=published, from_completion=rule.counts_from == "completion", ignores_body=natural)


def _scope(call: Call, key: str) -> Scope:
    return (call.account, call.name, key)


def _failure() -> Answer:
    return as_answer(500, {"message": "internal error"})


def _overridden(answer: Answer, rule: FaultRule | None) -> Answer:
    if rule is None:
        return answer
    body = answer.body if rule.body is None else rule.body.encode()
    return Answer(rule.status or answer.status, body, answer.headers)
