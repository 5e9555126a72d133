"""Whatever the case, the contract and the answers: no unsafe replay, no false absence, and always an end.

The last test plays a case to its end in simulated time: each step is what the ledger would do with the conclusion.
"""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime, timedelta

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outbox_relay.attempt.classify import Classification, Finding
from outbox_relay.ledger.records import Evidence, Postponement, Resolution, ReviewRequest, UnknownCase
from outbox_relay.providers.parts import Step
from outbox_relay.states import Event
from reconciler.conclude import (
    Absent,
    Conclusion,
    Found,
    Inconclusive,
    LookupAnswer,
    Setting,
    after_lookup,
    after_replay,
    conclude,
)
from reconciler.decide import Lookup, Replay, Review, UseEvidence, WaitUntil, decide
from reconciler.settle import settles_at, window_ends
from reconciler.terms import LookupTerms, NoTerms, Reason, ReplayTerms, Terms
from tests.unit.unknown_cases import CASE, CLAIM, KEYED, POLICY, START, after, evidence

SECONDS = st.floats(0, 400_000, allow_nan=False)
STEPS_MAX = 400
"""More than any case can need; the real bound is asserted below."""

lookups = st.builds(
    LookupTerms, authoritative=st.booleans(), lag_s=st.floats(0, 600), retention_s=st.none() | st.floats(1, 100_000)
)
replays = st.builds(
    ReplayTerms,
    window_s=st.floats(0, 200_000),
    published=st.booleans(),
    concurrent_safe=st.booleans(),
    refusal_proves_absence=st.booleans(),
)


@st.composite
def all_terms(draw: st.DrawFn) -> Terms:
    lookup, replay = draw(st.none() | lookups), draw(st.none() | replays)
    ways = [way for way, there in ((Step.LOOKUP, lookup), (Step.REPLAY, replay)) if there is not None]
    return replace(
        KEYED,
        order=tuple(draw(st.permutations(ways))),
        lookup=lookup,
        replay=replay,
        processing_s=draw(st.floats(0, 600)),
        live=draw(st.booleans()),
        contract_version=draw(st.sampled_from(["1+abc", "1+abc", "1+abc", "2+def"])),
        account_identity=draw(st.sampled_from(["team_1", "team_1", "team_1", "team_2"])),
        base_url=draw(st.sampled_from([CLAIM.base_url, CLAIM.base_url, CLAIM.base_url, "https://other.example.com"])),
    )


items = st.lists(
    st.sampled_from(
        [
            evidence("no_response", "connection_lost"),
            evidence("lookup", "empty_before_settled"),
            evidence("lookup", "empty_not_proof"),
            evidence("lookup", "http_503"),
            evidence("replay", "key_mismatch", "arrival"),
            evidence("replay", "replay_refused", "refusal"),
            evidence("replay", "replayed_server_error"),
            evidence("replay", "http_502"),
        ]
    ),
    max_size=6,
)


@st.composite
def all_cases(draw: st.DrawFn) -> UnknownCase:
    now = draw(SECONDS)
    return replace(
        CASE,
        now=after(now),
        last_attempt_at=after(draw(st.floats(0, now))),
        in_flight_until=after(draw(SECONDS)),
        unknown_since=after(draw(st.floats(0, now))),
        deliver_by=draw(st.none() | SECONDS.map(after)),
        cancel_requested=draw(st.booleans()),
        review_open=draw(st.booleans()),
        lookups=draw(st.integers(0, POLICY.lookups_max + 1)),
        replays=draw(st.integers(0, POLICY.replays_max + 1)),
        resends=draw(st.integers(0, POLICY.resends_max + 1)),
        evidence=tuple(draw(items)),
    )


@given(case=all_cases(), terms=all_terms())
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_replay_only_while_every_one_of_its_conditions_holds(case: UnknownCase, terms: Terms) -> None:
    decision = decide(case, terms, POLICY)
    if not isinstance(decision, Replay):
        return
    assert terms.replay is not None
    assert case.now < decision.until <= case.first_attempt_at + timedelta(seconds=terms.replay.window_s)
    assert case.deliver_by is None or case.now < decision.until <= case.deliver_by
    assert not case.cancel_requested
    assert terms.live
    assert case.replays < POLICY.replays_max
    assert case.now >= case.in_flight_until or terms.replay.concurrent_safe
    claim = case.claim
    assert (claim.contract_version, claim.base_url, claim.account_identity) == (
        terms.contract_version,
        terms.base_url,
        terms.account_identity,
    )
    assert not {item.reason for item in case.evidence} & {"key_mismatch", "replay_refused", "replayed_server_error"}


@given(case=all_cases(), terms=all_terms())
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_absence_only_while_every_one_of_its_conditions_holds(case: UnknownCase, terms: Terms) -> None:
    decision = decide(case, terms, POLICY)
    if not isinstance(decision, Lookup):
        return
    told = after_lookup(Setting(case, terms, POLICY, 0.0), decision, Absent(evidence("lookup", "not_found")))
    if not (isinstance(told, Resolution) and told.event is Event.PROVEN_ABSENT):
        return
    assert terms.lookup is not None
    assert terms.lookup.authoritative
    assert case.now >= case.in_flight_until + timedelta(seconds=terms.processing_s + terms.lookup.lag_s)
    assert not any(item.proves == "arrival" for item in case.evidence)
    assert case.claim.contract_version == terms.contract_version
    assert case.claim.account_identity == terms.account_identity
    if told.resend:
        assert not case.cancel_requested
        assert case.deliver_by is None or case.now < case.deliver_by
        assert case.resends < POLICY.resends_max


@given(case=all_cases(), terms=all_terms(), kind=st.sampled_from(["late_acceptance", "receipt", "response"]))
def test_an_acceptance_wins_over_everything(case: UnknownCase, terms: Terms, kind: str) -> None:
    known = evidence(kind, "http_200", "acceptance")
    assert isinstance(decide(replace(case, unused_acceptance=known), terms, POLICY), UseEvidence)


@given(case=all_cases(), terms=all_terms())
def test_a_wait_always_lies_ahead(case: UnknownCase, terms: Terms) -> None:
    decision = decide(case, terms, POLICY)
    if isinstance(decision, WaitUntil):
        assert decision.until > case.now


# ---- Every case comes to an end -------------------------------------------------------------------------------------

BEHAVIOURS = ("found", "absent", "inconclusive", *(str(finding) for finding in Finding))


class Play:
    """One case under the reconciler, with the ledger's part played by the rules of its functions."""

    def __init__(self, case: UnknownCase, terms: Terms, answers: list[str], deadline_s: float) -> None:
        self.case = case
        self.terms = terms
        self.answers = answers
        self.deadline_s = deadline_s
        self.steps = 0
        self.sends: list[datetime] = []

    def run(self) -> str:
        while self.steps < STEPS_MAX:
            self.steps += 1
            decision = decide(self.case, self.terms, POLICY)
            told = self.act(decision)
            match told:
                case Resolution():
                    return str(told.event)
                case ReviewRequest():
                    self.apply(told.evidence, told.look_again_in_s)
                    self.case = replace(self.case, review_open=True)
                    if told.look_again_in_s is None:
                        return "review"
                case Postponement():
                    self.apply(told.evidence, told.delay_s)
                    spent = self.case.lookups + told.spent_lookup
                    self.case = replace(self.case, lookups=spent)
        return "looking, with an owner" if self.case.review_open else "lost"

    def act(self, decision: object) -> Conclusion:
        setting = Setting(self.case, self.terms, POLICY, 0.5)
        answer = self.answers[self.steps % len(self.answers)]
        match decision:
            case Lookup():
                return after_lookup(setting, decision, look(answer))
            case Replay():
                assert self.case.now < decision.until
                self.sends.append(self.case.now)
                self.case = replace(
                    self.case,
                    now=self.case.now + timedelta(seconds=self.deadline_s),
                    last_attempt_at=self.case.now,
                    in_flight_until=max(self.case.in_flight_until, self.case.now + timedelta(seconds=self.deadline_s)),
                )
                told = after_replay(replace(setting, case=self.case), replayed(answer))
                self.case = replace(self.case, replays=self.case.replays + 1)
                return told
            case UseEvidence() | WaitUntil() | Review():
                return conclude(setting, decision)
            case _:
                raise AssertionError(decision)

    def apply(self, seen: Evidence | None, delay_s: float | None) -> None:
        case = self.case
        if delay_s is not None:
            assert delay_s > 0
            assert math.isfinite(delay_s)
        later = case.now + timedelta(seconds=delay_s or 0.0)
        if seen is not None:
            case = replace(case, evidence=(*case.evidence, replace(seen, recorded_at=case.now)))
        self.case = replace(case, now=later)


def look(answer: str) -> LookupAnswer:
    seen = evidence("lookup", "http_200")
    match answer:
        case "found" | "accepted":
            return Found(("id_1",), 1, seen)
        case "absent":
            return Absent(seen)
        case _:
            return Inconclusive(replace(seen, reason="http_503"))


def replayed(answer: str) -> Classification:
    known = set(Finding)
    finding = Finding(answer) if answer in known else Finding.UNKNOWN
    seen = Evidence(kind="response", proves="nothing", reason="http_500", status=500)
    return Classification(finding, f"{finding}_reason", seen)


@given(
    terms=all_terms(),
    answers=st.lists(st.sampled_from(BEHAVIOURS), min_size=1, max_size=5),
    deliver_by=st.none() | SECONDS.map(after),
    cancel_requested=st.booleans(),
    in_flight_s=st.floats(0, 100),
)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_case_ends_resolved_or_with_an_owner_in_bounded_steps(
    terms: Terms,
    answers: list[str],
    deliver_by: datetime | None,
    cancel_requested: bool,
    in_flight_s: float,
) -> None:
    case = replace(
        CASE,
        now=after(15),
        unknown_since=after(15),
        in_flight_until=after(in_flight_s),
        deliver_by=deliver_by,
        cancel_requested=cancel_requested,
    )
    play = Play(case, terms, answers, deadline_s=10.0)
    end = play.run()
    assert end != "lost"
    # Every replay was sent inside the window and before the agent's deadline, whatever the provider answered.
    for sent_at in play.sends:
        assert sent_at < window_ends(case, terms, POLICY)
        assert deliver_by is None or sent_at < deliver_by
        assert not cancel_requested
    assert len(play.sends) <= POLICY.replays_max


def test_no_configuration_ends_with_an_owner() -> None:
    decision = decide(CASE, NoTerms(Reason.ACCOUNT_MISSING), POLICY)
    assert isinstance(decision, Review)


def test_settle_time_never_precedes_the_last_possible_send() -> None:
    assert settles_at(CASE, replace(KEYED, lookup=LookupTerms(authoritative=True, lag_s=0), processing_s=0)) >= START
