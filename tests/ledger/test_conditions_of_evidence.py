"""One condition at a time of how evidence is weighed, and of what guards it and the history."""

from __future__ import annotations

import json
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.ledger.factories import Row, Stage
from tests.ledger.test_each_condition import unused

DOUBT: Row = {"kind": "no_response", "proves": "nothing", "reason": "timeout"}


def test_an_acceptance_is_weighed_against_its_own_action_and_once(stage: Stage) -> None:
    other = stage.attempt("response_lost")
    stage.late_acceptance(other, "of-other")
    action = stage.attempt("response_lost", evidence=DOUBT | {"provider_id": "no-acceptance"})
    assert stage.resolve(action, "found", provider_id="id-1") == "applied"
    stage.late_acceptance(action, "id-1")
    assert not stage.facts(action)["duplicate_suspected"]
    assert (unused(stage, action), unused(stage, other)) == (["nothing"], ["acceptance"])
    before = stage.everything(other)
    stage.late_acceptance(action, "id-2")
    assert stage.facts(action)["duplicate_suspected"]
    stage.decide(stage.review_of(action), "noted")
    stage.late_acceptance(action, "id-1")
    assert stage.review_of(action) is None, "what was weighed before is not weighed again"
    assert stage.everything(other) == before


def test_an_acceptance_of_an_open_action_waits_and_marks_no_other(stage: Stage) -> None:
    other, action = stage.insert(), stage.insert()
    stage.late_acceptance(action)
    assert unused(stage, action) == ["acceptance"]
    waiting = [(stage.queued(each) or {})["evidence_waiting"] for each in (other, action)]
    assert waiting == [False, True]


def test_an_acceptance_that_contradicts_a_refusal_is_suspected(stage: Stage) -> None:
    action = stage.attempt("refused")
    assert stage.report(action, uuid4(), "accepted") == "stale"
    assert stage.facts(action)["duplicate_suspected"]


def test_an_acceptance_of_an_action_that_this_ledger_lost_stays_unused(stage: Stage) -> None:
    stage.insert()
    lost = uuid4()
    assert stage.report(lost, uuid4(), "accepted", provider_id="x") == "stale"
    assert unused(stage, lost) == ["acceptance"]


def test_two_acceptances_of_a_settled_action_are_weighed_one_after_the_other(stage: Stage) -> None:
    action = stage.attempt("accepted", provider_id="id-1")
    with stage.owner.transaction():
        stage.rows("owner", "select 1 from outbox.outbound_actions where action_id = %s for update", action)
        stage.as_("relay").execute("set lock_timeout = '200ms'")
        item = {"action_id": action, "claim_token": uuid4(), "event": "accepted", "provider_id": "id-1"}
        report = "select * from outbox.record_outcomes(%s)"
        assert stage.refusal("relay", report, json.dumps([item], default=str)) == "55P03"


def test_what_a_stale_outcome_learned_is_kept(stage: Stage) -> None:
    action, _ = stage.started()
    assert stage.report(action, uuid4(), "refused") == "stale"
    assert stage.report(action, uuid4(), "refused", evidence=DOUBT) == "stale"
    assert unused(stage, action) == ["nothing"]


def test_evidence_is_kept_as_it_came_until_it_may_go(stage: Stage) -> None:
    quote = DOUBT | {"excerpt": "a", "headers": {"a": "b"}, "url": "u"}
    redacted, settled, still_open = (stage.attempt("response_lost", evidence=quote) for _ in range(3))
    token = stage.look()["token"]
    for action in (redacted, settled):
        assert stage.resolve(action, "proven_absent", token=token) == "applied"
    redact = "update outbox.outbound_actions set payload = '{}', redacted_at = now() where action_id = %s"
    stage.rows("owner", redact, redacted)

    def changed(action: UUID, settings: str) -> str | None:
        return stage.refusal("owner", f"update outbox.evidence set {settings} where action_id = '{action}'")

    emptied = "excerpt = null, headers = '{}', url = null"
    assert changed(redacted, emptied) is None
    for action, forged in (
        (redacted, "excerpt = 'x', headers = '{}', url = null"),
        (redacted, 'excerpt = null, headers = \'{"x": "y"}\', url = null'),
        (redacted, "excerpt = null, headers = '{}', url = 'x'"),
        (redacted, f"{emptied}, provider_id = 'forged'"),
        (settled, emptied),
        (still_open, "provider_id = 'forged'"),
    ):
        assert changed(action, forged) == "OB002", forged
    stage.rows("owner", "update outbox.evidence set used_at = now()")
    assert stage.one("select count(*) from outbox.evidence where used_at is null") == 0
    assert changed(still_open, "used_at = now() + interval '1 day'") == "OB002"
    delete = "delete from outbox.evidence where action_id = %s"
    assert [stage.refusal("owner", delete, action) for action in (redacted, settled, still_open)] == [
        None, None, "OB002",
    ]  # fmt: skip


def test_events_go_only_with_their_own_noted_action(stage: Stage) -> None:
    noted, action = (stage.attempt("accepted", provider_id=name) for name in ("1", "2"))
    note = "update outbox.outbound_actions set payload = '{}', redacted_at = now() {} where action_id = '{}'"
    stage.owner.execute(note.replace("{} where", ", history_deleted_at = now() where").format("{}", noted).encode())
    stage.owner.execute(note.replace(" {} where", " where").format("{}", action).encode())
    delete = "delete from outbox.action_events where action_id = %s"
    assert [stage.refusal("owner", delete, each) for each in (noted, action)] == [None, "OB002"]


def test_who_changes_the_id_of_an_action_is_told_so(stage: Stage) -> None:
    stage.insert()
    with pytest.raises(psycopg.Error, match="the id of an action cannot change") as refused:
        stage.rows("owner", "update outbox.outbound_actions set action_id = gen_random_uuid()")
    assert refused.value.sqlstate == "OB002"
