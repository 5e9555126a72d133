"""What a queue costs to read while an old snapshot keeps in it what is finished, and what sparing that may not cost."""

from __future__ import annotations

import json
from uuid import UUID

import psycopg
import pytest

from tests.ledger.arranging import use_no_index
from tests.ledger.factories import Row, Stage

FINISHED = 400
EVERY_LINE_IS_LONG = "set outbox.many_entries = '-1'"
NO_LINE_IS_LONG = "set outbox.many_entries = '1000000'"
LINE = ("mail", "default", 1)
FROM = "select outbox.scan_from(%s, %s, %s, outbox.now())::text"
LATER_S = 60.0
"""More than a transaction may need to commit."""


def due_now(stage: Stage) -> UUID:
    """An action that is due now by the ledger's clock, which may have been moved."""
    return stage.insert(not_before=stage.one("select outbox.now()"))


def claim_counted(stage: Stage) -> tuple[list[UUID], int]:
    """Claim as a relay: what was got, and how many entries of the index of due actions were read."""
    relay = stage.as_("relay")
    read = "select pg_stat_get_xact_tuples_returned('outbox.work_queue_dispatch_due'::regclass)"
    with relay.transaction():
        before = stage.one(read, role="relay")
        ids = stage.claim(5)["ids"]
        return ids, stage.one(read, role="relay") - before


def finish_many(stage: Stage) -> None:
    """Actions that come and go."""
    insert = (
        "insert into outbox.outbound_actions (provider, operation, idempotency_key, payload)"
        " select 'mail', 'send', 'gone-' || n, '{\"to\": \"a@example.com\"}' from generate_series(1, %s) n"
    )
    stage.rows("agent", insert, FINISHED)
    claimed = stage.claim(FINISHED)
    assert len(claimed["ids"]) == FINISHED
    done: list[Row] = [
        {"action_id": each, "claim_token": claimed["token"], "event": "accepted", "reason": "r"}
        for each in claimed["ids"]
    ]
    stage.rows("relay", "select * from outbox.record_outcomes(%s)", json.dumps(done, default=str))


def test_what_is_finished_is_not_read_again_by_every_claim_while_a_snapshot_is_held(stage: Stage) -> None:
    stage.rows("relay", NO_LINE_IS_LONG)
    with psycopg.connect(stage.ledger.dsn()) as holder:
        holder.execute("set transaction isolation level repeatable read")
        holder.execute("select count(*) from outbox.work_queue")
        finish_many(stage)
        stage.advance(LATER_S)
        assert claim_counted(stage)[1] >= FINISHED, "the snapshot holds nothing, and this test shows nothing"
        stage.rows("relay", EVERY_LINE_IS_LONG)
        assert stage.claim(5)["ids"] == []
        action = due_now(stage)
        ids, entries = claim_counted(stage)
        assert ids == [action]
        assert entries < FINISHED / 10


def test_what_comes_before_the_noted_place_is_found_by_the_next_whole_scan(stage: Stage) -> None:
    stage.rows("relay", EVERY_LINE_IS_LONG)
    stage.advance(LATER_S)
    assert stage.claim()["ids"] == []
    early, late = stage.insert(), due_now(stage)
    assert stage.claim()["ids"] == [late]
    stage.advance(LATER_S + 2)
    assert stage.claim()["ids"] == [early]


def test_a_short_line_is_read_from_its_beginning(stage: Stage) -> None:
    stage.advance(LATER_S)
    assert stage.claim()["ids"] == []
    early = stage.insert()
    assert stage.claim()["ids"] == [early]


def test_a_line_is_read_from_its_own_oldest_open_action(stage: Stage) -> None:
    stage.declare({}, {"provider": "early"}, {"account": "another"})
    unknown = stage.attempt("response_lost")
    stage.rows("owner", "update outbox.work_queue set due_at = '2002-01-01' where action_id = %s", unknown)
    taken, _ = stage.started(not_before="2003-01-01")
    for place in ({"provider": "early"}, {"account": "another"}, {"priority": 2}):
        stage.insert(**place, not_before="2001-01-01")
    for due in ("2005-01-01", "2004-01-01"):
        stage.insert(not_before=due)
    use_no_index(stage, "owner")
    note = "select outbox.note_long_line(%s, %s, %s, outbox.now(), interval '1 second')"
    stage.rows("owner", note, *LINE)
    assert stage.one(FROM, *LINE).startswith("2004-01-01"), f"{taken} is under way, {unknown} waits for a look"
    for other in (("early", "default", 1), ("mail", "another", 1), ("mail", "default", 2)):
        assert stage.one(FROM, *other) == "-infinity"


def test_a_transaction_that_is_not_committed_yet_is_left_room_for(stage: Stage) -> None:
    note = "select outbox.note_long_line(%s, %s, %s, outbox.now(), interval '3 seconds')"
    stage.rows("owner", note, *LINE)
    behind = "select extract(epoch from outbox.now() - outbox.scan_from(%s, %s, %s, outbox.now()))::float"
    assert stage.one(behind, *LINE) == pytest.approx(5, abs=3)
    stage.insert(not_before="2100-01-01")
    stage.rows("owner", note, *LINE)
    assert stage.one(behind, *LINE) == pytest.approx(5, abs=3), "what is for later is no reason to skip what is due"
    whole = "select outbox.scan_from(%s, %s, %s, outbox.now() + interval '{} seconds')::text"
    assert stage.one(whole.format(50), *LINE) != "-infinity"
    assert stage.one(whole.format(61), *LINE) == "-infinity", "twenty times as long as the scan took"
    stage.rows("owner", note, "mail", "default", 0)
    assert stage.one(whole.format(0), *LINE) != "-infinity", "the note of another line has taken this one's place"


def test_looking_ahead_begins_where_claims_begin(stage: Stage) -> None:
    account = json.dumps([{"provider": "mail", "account": "default"}])
    stage.rows("relay", EVERY_LINE_IS_LONG)
    stage.advance(LATER_S)
    assert stage.claim()["ids"] == []
    stage.insert()
    look = "select outbox.next_dispatch_in(%s)"
    assert stage.one(look, account, role="relay") is None
    assert stage.one(look, account) == 0, "another session has noted nothing"
