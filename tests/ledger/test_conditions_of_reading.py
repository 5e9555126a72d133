"""What is told of a ledger, one function at a time: the right rows, only those, in order, no more than asked for."""

from __future__ import annotations

from uuid import UUID, uuid4

from outbox_relay.states import STATES
from tests.ledger.arranging import lay_last, use_no_index
from tests.ledger.factories import PAYLOAD, Row, Stage, in_one_hour
from tests.ledger.test_changes import out_of_order
from tests.ledger.test_reading import ADVICE, status

DOUBT: Row = {"kind": "no_response", "proves": "nothing", "reason": "timeout"}


def by_owner(stage: Stage, key: str, **columns: object) -> UUID:
    """An action that somebody else than the agent created."""
    row = {"provider": "mail", "operation": "send", "payload": PAYLOAD, "idempotency_key": key}
    action: UUID = stage.insert_as("owner", row | columns)[0]["action_id"]
    return action


def test_advice_follows_from_the_states_and_an_open_review(stage: Stage) -> None:
    given = {}
    for state, in_review in [(state, in_review) for state in STATES for in_review in (False, True)]:
        advice = stage.one("select outbox.advice(%s, %s, %s)", *state, in_review, role="agent")
        given[state, in_review] = advice
    undecided = {"wait", "unknown_do_not_resend"}
    expected = {(state, False): ADVICE[state] for state in STATES}
    expected |= {(s, True): "in_review" if ADVICE[s] in undecided else ADVICE[s] for s in STATES}
    assert given == expected


def test_a_record_is_of_the_notice_or_the_receipt_or_the_state(stage: Stage) -> None:
    given = {
        ("review_opened", "on_hold", "delivery_pending", "not_expected"): "review_opened",
        ("replay_started", "dispatch_finished", "delivery_unknown", "not_expected"): "replay_started",
        ("receipt_delivered", "dispatch_finished", "delivery_confirmed", "delivered"): "delivered",
        ("accepted", "dispatch_finished", "delivery_confirmed", "awaited"): "delivery_confirmed",
        ("claimed", "dispatch_started", "delivery_pending", "awaited"): "dispatch_started",
    }
    told = {facts: stage.one("select outbox.record_type(%s, %s, %s, %s)", *facts) for facts in given}
    assert told == {facts: f"outbox-relay.delivery-status.{name}.v1" for facts, name in given.items()}


def test_a_history_is_of_one_action_from_its_beginning(stage: Stage) -> None:
    other, action = (stage.attempt("response_lost", evidence=DOUBT) for _ in range(2))
    token = stage.look()["token"]
    for each in (other, action):
        stage.ask(each, token=token, evidence=DOUBT | {"reason": "later"})
    for table in ("action_events", "evidence"):
        first = "sequence = 1" if table == "action_events" else "reason = 'timeout'"
        lay_last(stage, table, first)
    use_no_index(stage, "operator")
    told = stage.rows("operator", "select * from outbox.action_history(%s)", action)
    assert len(told) == 1
    assert [event["sequence"] for event in told[0]["events"]] == [1, 2, 3, 4]
    assert {event["action_id"] for event in told[0]["events"]} == {str(action)}
    assert [item["reason"] for item in told[0]["evidence"]] == ["timeout", "later"]


def test_a_request_is_of_the_action_asked_for(stage: Stage) -> None:
    for recipient in ("a@example.com", "b@example.com"):
        action = stage.insert(payload={"to": recipient})
        assert stage.one("select outbox.action_request(%s)->>'recipient'", action, role="operator") == recipient


def test_an_action_is_found_by_its_key_and_by_its_id(stage: Stage) -> None:
    find = "select found->>'action_id' as id from outbox.find_action(%s) as found"
    first, second = stage.insert("first"), stage.insert("second")
    for action, key in ((first, "first"), (second, "second")):
        assert stage.rows("operator", find, key) == stage.rows("operator", find, str(action)) == [{"id": str(action)}]
    assert stage.rows("operator", find, "third") == stage.rows("operator", find, str(uuid4())) == []
    stage.insert(str(first))
    assert len(stage.rows("operator", find, str(first))) == 1, "a key may look like the id of another action"


def test_a_list_of_actions_is_what_was_asked_for_newest_first(stage: Stage) -> None:
    stage.declare({}, {"provider": "post"})
    refused = stage.attempt("refused")
    held = stage.attempt("held")
    waits, foreign = stage.insert(provider="post"), by_owner(stage, "foreign")
    use_no_index(stage, "operator")
    names = ("p_provider", "p_execution", "p_delivery", "p_created_by", "p_limit")
    everything = [foreign, waits, held, refused]
    for asked, expected in (
        ({}, everything),
        ({"p_limit": 2}, everything[:2]),
        ({"p_provider": "post"}, [waits]),
        ({"p_execution": "on_hold"}, [held]),
        ({"p_delivery": "delivery_rejected"}, [refused]),
        ({"p_created_by": "outbox_agent"}, everything[1:]),
        ({"p_created_by": "outbox_agent", "p_execution": "action_created", "p_provider": "mail"}, []),
    ):
        values = [asked.get(name, 50 if name == "p_limit" else None) for name in names]
        listed = stage.rows(
            "operator", "select a->>'action_id' as id from outbox.list_actions(%s,%s,%s,%s,%s) a", *values
        )
        assert [row["id"] for row in listed] == [str(action) for action in expected], asked


def test_a_list_of_reviews_is_what_was_asked_for_most_urgent_first(stage: Stage) -> None:
    actions = [stage.attempt("response_lost") for _ in range(3)]
    token = stage.look()["token"]
    later, sooner, closed = (
        stage.ask(action, token=token, owner=owner, due_in_ms=due)
        for action, owner, due in zip(actions, ("ada", "grace", "ada"), (9000, 5000, 1000), strict=True)
    )
    stage.decide(closed, "failed")
    lay_last(stage, "reviews", f"review_id = {sooner}")
    use_no_index(stage, "operator")
    ask = "select review_id from outbox.list_reviews(%s, %s, %s, %s)"
    for asked, expected in (
        ((True, None, None, 100), [sooner, later]),
        ((False, None, None, 100), [sooner, later, closed]),
        ((False, None, None, 1), [sooner]),
        ((False, "ada", None, 100), [later, closed]),
        ((False, None, closed, 100), [closed]),
        ((True, None, closed, 100), []),
    ):
        assert [row["review_id"] for row in stage.rows("operator", ask, *asked)] == expected, asked


def test_changes_are_ones_own_from_the_cursor_on_in_order(stage: Stage) -> None:
    foreign = by_owner(stage, "foreign")
    actions = [stage.insert() for _ in range(2)]
    stage.claim()
    lay_last(stage, "action_events", "sequence = 1")
    use_no_index(stage, "agent")
    found: list[Row] = []
    page: list[Row] = []
    cursor = ""
    for _ in range(3):
        page = stage.rows("agent", "select * from outbox.changes(%s, 2)", cursor)
        found += page
        cursor = page[-1]["cursor"] if page else cursor
    assert foreign not in {row["action_id"] for row in found}
    pairs = [(row["action_id"], row["sequence"]) for row in found]
    first, second = actions
    assert pairs == [(first, 1), (second, 1), *((action, 2) for action in sorted(actions))]
    assert page == []
    assert len(stage.rows("agent", "select * from outbox.changes('', 0)")) == 1


def test_changes_come_in_order_per_action_in_pages_of_any_size(stage: Stage) -> None:
    """A relay's transaction is older than the INSERT of what it claims, and one of its actions goes on after it."""
    stage.declare({}, {"account": "second"})
    first = stage.insert()
    with stage.as_("relay").transaction():
        assert stage.claim()["ids"] == [first]
        late = [stage.insert(None, account="second") for _ in range(3)]
        token = stage.claim(account="second")["token"]
        for action in late:
            assert stage.report(action, token, "no_effect", retry_in_ms=0) == "applied"
    again = stage.claim(account="second")
    assert stage.report(late[1], again["token"], "accepted", provider_id="p") == "applied"
    everything = {
        tuple(row.values()) for row in stage.rows("owner", "select action_id, sequence from outbox.action_events")
    }
    use_no_index(stage, "agent")
    for limit in (1, 2, 3, 100):
        shown = read_everything(stage, limit, len(everything))
        assert (len(shown), set(shown)) == (len(everything), everything)
        assert out_of_order(shown) == []


def read_everything(stage: Stage, limit: int, steps: int) -> list[tuple[UUID, int]]:
    """Pages of this size, one more than there can be; what they show."""
    shown: list[tuple[UUID, int]] = []
    cursor = ""
    for _ in range(steps + 1):
        page = stage.rows("agent", "select cursor, action_id, sequence from outbox.changes(%s, %s)", cursor, limit)
        assert len(page) <= limit
        shown += [(row["action_id"], row["sequence"]) for row in page]
        cursor = page[-1]["cursor"] if page else cursor
    return shown


def test_what_a_newer_transaction_leads_is_shown_to_its_end(stage: Stage) -> None:
    """Also when another action of that transaction is further on."""
    stage.declare({}, {"account": "second"}, {"account": "third"})
    further = stage.attempt("no_effect", retry_in_ms=0)
    older = Stage(stage.ledger)
    stage.insert(account="third")
    with older.as_("relay").transaction():
        older.claim(account="third")
        led = stage.insert(account="second")
        with stage.as_("relay").transaction():
            token = stage.claim(account="second")["token"]
            assert stage.claim()["ids"] == [further]
        for _ in range(2):
            assert older.report(led, token, "no_effect", retry_in_ms=0) == "applied"
            token = older.claim(account="second")["token"]
    lay_last(stage, "action_events", f"action_id = '{led}' and sequence = 3")
    use_no_index(stage, "agent")
    stored = stage.rows("owner", "select action_id, sequence from outbox.action_events")
    everything = {(row["action_id"], row["sequence"]) for row in stored}
    shown = read_everything(stage, 1, len(everything))
    assert (len(shown), set(shown)) == (len(everything), everything)
    assert out_of_order(shown) == []


def test_a_cancel_is_of_ones_own_action_and_speaks_of_it(stage: Stage) -> None:
    by_owner(stage, "foreign")
    first, second = stage.insert("first"), stage.insert("second")
    assert stage.refusal("agent", "select * from outbox.cancel('foreign')") == "OB009"
    assert stage.rows("agent", "select * from outbox.cancel('second')") == [
        {"action_id": second, "outcome": "cancelled", "execution_state": "cancelled", "delivery_state": "not_sent"}
    ]
    assert stage.state(first).execution == "action_created"


def test_a_status_is_ones_own_and_of_the_review_that_is_open(stage: Stage) -> None:
    foreign = by_owner(stage, "foreign")
    action, other = stage.attempt("response_lost"), stage.attempt("response_lost")
    token = stage.look()["token"]
    stage.decide(stage.ask(action, token=token), "resend")
    stage.ask(other, token=token, due_in_ms=1)
    seen = stage.rows("agent", "select action_id, advice from outbox.action_status order by action_id")
    assert foreign not in {row["action_id"] for row in seen}
    assert seen == [{"action_id": action, "advice": "wait"}, {"action_id": other, "advice": "in_review"}]
    assert status(stage, action)["check_again_at"] > status(stage, action)["read_at"]
    assert status(stage, other)["check_again_at"] == stage.one(
        "select due_at from outbox.reviews where closed_at is null"
    )
    stage.cancel(action)
    assert status(stage, action)["check_again_at"] is None


# -- Counts -----------------------------------------------------------------------------------------------------------


def test_what_waits_is_counted_once_and_where_it_belongs(stage: Stage) -> None:
    stage.declare({}, {"account": "other"})
    future, ancient = in_one_hour(stage), "2001-01-01"
    stage.insert(not_before=future)
    stage.advance(3660)
    assert len(stage.claim()["ids"]) == 1, "claimed, and due later: the clock was set back"
    stage.advance(0)
    stage.attempt("held")
    started = [stage.started(not_before=ancient) for _ in range(3)]
    stage.advance(-1000)
    for action, token in started[:2]:
        assert stage.report(action, token, "response_lost") == "applied"
    assert len(stage.look(1)["ids"]) == 1
    stage.advance(0)
    stage.insert()
    stage.insert(not_before=future)
    stage.insert(not_before=future, account="other")
    backlog = {row["account"]: row for row in stage.rows("operator", "select * from outbox.backlog()")}
    counts = ("due", "scheduled", "claimed", "on_hold", "unknown")
    assert [backlog["default"][name] for name in counts] == [1, 1, 2, 1, 2]
    assert [backlog["other"][name] for name in counts] == [0, 1, 0, 0, 0]
    assert 0 <= backlog["default"]["oldest_due_age_s"] < 900 < backlog["default"]["oldest_unknown_age_s"] < 2000
    assert backlog["other"]["oldest_due_age_s"] is backlog["other"]["oldest_unknown_age_s"] is None


def test_counters_count_what_was_created_what_is_suspected_and_what_is_open(stage: Stage) -> None:
    stage.one("select outbox.probe_write()::text", role="relay")
    stage.rows("owner", "insert into outbox.counters values ('mail', 'default', 'other', 5)")
    action = stage.attempt("accepted", provider_id="1")
    stage.late_acceptance(action, "2")
    stage.attempt("accepted", provider_id="3")
    stage.decide(stage.ask(stage.attempt("response_lost")), "failed")
    counters = stage.one("select outbox.action_counters()", role="operator")
    assert counters["created"] == [{"provider": "mail", "account": "default", "total": 3}]
    suspected = {state["delivery_state"]: state["duplicates_suspected"] for state in counters["states"]}
    assert suspected == {"delivery_confirmed": 1, "reconciled_failed": 0}
    assert [review["total"] for review in counters["awaiting_review"]] == [1]


def test_the_health_of_the_capture_is_of_our_publication_and_the_slot_asked_for(stage: Stage) -> None:
    names = [f"mutant_{uuid4().hex[:8]}" for _ in range(2)]
    health = "select outbox.capture_health(%s)"
    try:
        for name in names:
            stage.rows("owner", "select pg_create_physical_replication_slot(%s)::text", name)
        told = stage.one(health, names[0], role="operator")
        assert told["publication"]
        assert told["slot"]["active"] is False
        assert stage.one(health, "no_such_slot", role="operator")["slot"] is None
        stage.rows("owner", "create publication other")
        stage.rows("owner", "drop publication outbox_events")
        assert stage.one(health, names[0], role="operator")["publication"] is False
    finally:
        for name in names:
            stage.rows("owner", "select pg_drop_replication_slot(%s)::text", name)
