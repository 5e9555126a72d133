"""Names what one attempt proved, never more. Pure: from the transmission and the contract alone.

No connection: provably not sent. Anything after that without a complete, understood answer: unknown. Garbage on a 2xx
is unknown. Only the contract's word makes a status mean that nothing was done.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, TypeVar, assert_never

from outbox_relay.attempt.cleaning import excerpt, kept_headers
from outbox_relay.attempt.reading import SPOKEN_OF, ReadAnswer, as_id
from outbox_relay.attempt.request import Request
from outbox_relay.attempt.retry_after import longest, read_reset, read_retry_after
from outbox_relay.ledger.records import Evidence
from outbox_relay.providers.contract import Operation
from outbox_relay.providers.exchange import Transmission
from outbox_relay.providers.parts import AnswerRule, ThrottleRule
from outbox_relay.states import Event
from outbox_relay.values import value

REDIRECTED: Final = "redirected"
"""Reason of an answer that points elsewhere: never followed; the configured address is wrong."""


class Finding(StrEnum):
    """What an attempt proved."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    """Refused for good, nothing was done."""
    NO_EFFECT = "no_effect"
    """Provably not sent, or provably not processed: the same may be tried later."""
    HELD = "held"
    """Provably nothing was done, and nothing can be until a person changes something."""
    RELEASED = "released"
    """The lease was too short in the last moment: not one byte left, and no attempt is counted."""
    UNKNOWN = "unknown"
    IN_PROGRESS = "in_progress"
    """The provider is still working under this key: an earlier request arrived. The outcome stays unknown."""
    MISMATCH = "mismatch"
    """The provider knows this key with another body: an earlier request arrived. Unknown, and a person must look."""


@value
class Classification:
    """What one attempt proved, and what follows for the account."""

    finding: Finding
    reason: str
    evidence: Evidence
    provider_id: str | None = None
    retry_after_s: float | None = None
    """How long the provider wants to be left alone, capped; for the account, not only for this action."""
    pause_account: bool = False
    """True when the trouble is the account's: sending on would burn action after action."""
    replayed: bool = False
    """True when the provider marked the answer as a stored one."""
    message: str | None = None
    """For last_error: words of ours only, no payload, no secret."""

    @property
    def event(self) -> Event:
        """What the relay reports to the ledger."""
        match self.finding:
            case Finding.ACCEPTED:
                return Event.ACCEPTED
            case Finding.REFUSED:
                return Event.REFUSED
            case Finding.NO_EFFECT:
                return Event.NO_EFFECT
            case Finding.HELD:
                return Event.HELD
            case Finding.RELEASED:
                return Event.RELEASED
            case Finding.UNKNOWN | Finding.IN_PROGRESS | Finding.MISMATCH:
                return Event.RESPONSE_LOST
            case _:
                assert_never(self.finding)


_PROVES: Final = {
    Finding.ACCEPTED: "acceptance",
    Finding.REFUSED: "refusal",
    Finding.NO_EFFECT: "nothing",
    Finding.HELD: "nothing",
    Finding.RELEASED: "nothing",
    Finding.UNKNOWN: "nothing",
    Finding.IN_PROGRESS: "arrival",
    Finding.MISMATCH: "arrival",
}


@value
class _Verdict:
    finding: Finding
    reason: str
    provider_id: str | None = None
    retry_after_s: float | None = None
    pause_account: bool = False


def classify(
    transmission: Transmission,
    operation: Operation,
    request: Request,
    *,
    attempt: int | None = None,
    brief: bool = False,
) -> Classification:
    """Name what the attempt proved. With `brief`, a plain acceptance comes with the evidence that tells it apart only.

    Such evidence is needed if the acceptance comes too late and at no other time: status, phase, attempt and the
    provider's id prove it; the address and the bytes are the claim's own.
    """
    read = None if transmission.answer is None else ReadAnswer(transmission.answer)
    verdict = _without_answer(transmission) if read is None else _with_answer(read, operation)
    replayed = read is not None and _is_replayed(read, operation)
    reason = f"replayed_{verdict.reason}" if replayed and verdict.finding is Finding.UNKNOWN else verdict.reason
    if brief and verdict.finding is Finding.ACCEPTED:
        evidence = _brief_evidence(transmission, verdict, attempt=attempt)
    else:
        evidence = _evidence(transmission, operation, request, verdict, reason=reason, attempt=attempt)
    return Classification(
        finding=verdict.finding,
        reason=reason,
        evidence=evidence,
        provider_id=verdict.provider_id,
        retry_after_s=verdict.retry_after_s,
        pause_account=verdict.pause_account,
        replayed=replayed,
        message=None if verdict.finding is Finding.ACCEPTED else _message(transmission, verdict.finding, reason),
    )


def not_sent(
    finding: Finding, reason: str, request: Request | None = None, *, attempt: int | None = None, message: str = ""
) -> Classification:
    """For what ends before a connection is asked for: a brake, a mode, a request that cannot be rendered."""
    evidence = Evidence(
        kind="no_response",
        proves="nothing",
        reason=reason,
        attempt=attempt,
        phase="not_sent",
        method=request.method if request else None,
        url=request.target if request else None,
        body_sha256=request.body_sha256 if request else None,
        wire_key=request.wire_key if request else None,
        account_identity=request.account_identity if request else None,
    )
    return Classification(finding, reason, evidence, message=message or None)


def _without_answer(transmission: Transmission) -> _Verdict:
    reason = transmission.failure or "no_answer"
    if transmission.bytes_may_have_left:
        return _Verdict(Finding.UNKNOWN, reason)
    if transmission.released:
        return _Verdict(Finding.RELEASED, reason)
    return _Verdict(Finding.NO_EFFECT, "connect_timeout" if reason == "deadline_passed" else reason)


def _with_answer(read: ReadAnswer, operation: Operation) -> _Verdict:
    answer = read.answer
    if not answer.complete:
        return _Verdict(Finding.UNKNOWN, f"answer_broken_off_http_{answer.status}")
    if answer.status not in SPOKEN_OF.of(operation):
        return _by_status(read, operation)
    by_key = _about_the_key(read, operation)
    if by_key is not None:
        return by_key
    throttle = _first(operation.throttling, read)
    if throttle is not None:
        return _throttled(throttle, read)
    hold = _first(operation.holds, read)
    if hold is not None:
        return _Verdict(
            Finding.HELD, _reason(hold, read), retry_after_s=read_retry_after(answer), pause_account=hold.pauses_account
        )
    refusal = _first(operation.refusals, read)
    if refusal is not None:
        return _Verdict(Finding.REFUSED, _reason(refusal, read))
    return _by_status(read, operation)


def _by_status(read: ReadAnswer, operation: Operation) -> _Verdict:
    """For answers of which no rule speaks."""
    if read.answer.status in operation.acceptance.statuses:
        return _accepted(read, operation)
    return _ununderstood(read, operation)


def _about_the_key(read: ReadAnswer, operation: Operation) -> _Verdict | None:
    """Both answers prove that an earlier request with this key arrived; neither is a failure."""
    mismatch = _first(operation.idempotency.mismatch, read)
    if mismatch is not None:
        return _Verdict(Finding.MISMATCH, _reason(mismatch, read))
    running = _first(operation.idempotency.in_progress, read)
    if running is not None:
        return _Verdict(Finding.IN_PROGRESS, _reason(running, read), retry_after_s=read_retry_after(read.answer))
    return None


def _accepted(read: ReadAnswer, operation: Operation) -> _Verdict:
    acceptance = operation.acceptance
    if acceptance.when is not None and not read.holds(acceptance.when):
        return _Verdict(Finding.UNKNOWN, "answer_says_no" if read.readable else "answer_unreadable")
    provider_id = None if acceptance.id is None else as_id(read.read(acceptance.id))
    if provider_id is None and not acceptance.status_decides:
        return _Verdict(Finding.UNKNOWN, "answer_without_id" if read.readable else "answer_unreadable")
    return _Verdict(Finding.ACCEPTED, f"http_{read.answer.status}", provider_id=provider_id)


def _ununderstood(read: ReadAnswer, operation: Operation) -> _Verdict:
    status = read.answer.status
    if 300 <= status < 400:
        # Never followed. The address in the configuration is wrong, which concerns every action of the account.
        finding = Finding.HELD if operation.redirects_do_nothing else Finding.UNKNOWN
        return _Verdict(finding, REDIRECTED, pause_account=True)
    return _Verdict(Finding.UNKNOWN, f"http_{status}", retry_after_s=read_retry_after(read.answer))


def _throttled(rule: ThrottleRule, read: ReadAnswer) -> _Verdict:
    answer = read.answer
    asked = longest([read_retry_after(answer), read_reset(answer, rule.reset_header) if rule.reset_header else None])
    wait = longest([asked, rule.min_wait_s or None])
    return _Verdict(Finding.NO_EFFECT, _reason(rule, read), retry_after_s=wait, pause_account=True)


_Rule = TypeVar("_Rule", bound=AnswerRule)


def _first(rules: Iterable[_Rule], read: ReadAnswer) -> _Rule | None:
    return next((rule for rule in rules if read.matches(rule)), None)


def _reason(rule: AnswerRule, read: ReadAnswer) -> str:
    return rule.reason or f"http_{read.answer.status}"


def _is_replayed(read: ReadAnswer, operation: Operation) -> bool:
    mark = operation.idempotency.replayed
    return mark is not None and (read.answer.header(mark.header) or "").strip().lower() == mark.value.lower()


def _message(transmission: Transmission, finding: Finding, reason: str) -> str:
    status = "" if transmission.answer is None else f", status {transmission.answer.status}"
    return f"{finding.value}: {reason} (phase {transmission.phase.value}{status})"


def _brief_evidence(transmission: Transmission, verdict: _Verdict, *, attempt: int | None) -> Evidence:
    return Evidence(
        kind="response",
        proves=_PROVES[verdict.finding],
        reason=verdict.reason,
        attempt=attempt,
        phase=transmission.phase.value,
        status=None if transmission.answer is None else transmission.answer.status,
        provider_id=verdict.provider_id,
    )


def _evidence(
    transmission: Transmission,
    operation: Operation,
    request: Request,
    verdict: _Verdict,
    *,
    reason: str,
    attempt: int | None,
) -> Evidence:
    answer, mark = transmission.answer, operation.idempotency.replayed
    secrets = request.secrets
    also = (mark.header,) if mark else ()
    return Evidence(
        kind="no_response" if answer is None else "response",
        proves=_PROVES[verdict.finding],
        reason=reason,
        attempt=attempt,
        phase=transmission.phase.value,
        method=request.method,
        url=request.target,
        body_sha256=request.body_sha256,
        wire_key=request.wire_key,
        account_identity=request.account_identity,
        status=None if answer is None else answer.status,
        headers={} if answer is None else dict(kept_headers(answer, also, secrets)),
        excerpt=None if answer is None else excerpt(answer, secrets),
        provider_id=verdict.provider_id,
    )
