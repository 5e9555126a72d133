"""Conditions that may be dropped unnoticed: each function's, and for each what else holds it."""

from __future__ import annotations

_REDACTED = "no open action can have redacted_at: its own clause refuses that"
_CHOICE = "what this function forms from the event leaves no other choice"
_WEIGHED = "weigh_evidence, called next, uses up the same"
_SAME_KEY = "the row and keys name the same key; one is enough to find it"
_INTO = "select into takes the first anyway"
_NULL_IS_NO_OTHER = "null is not another id either"
_BETWEEN = "asked twice, for what happens between the two; neither time is forced here"
_NEVER_WAITS = "who skips what is locked never waits, in whatever order"
_SORTED_ONCE = "servers from 16 on sort once for all aggregates of a query: the order of the other one does"
_OPEN = "n.delivery_state in ('delivery_pending', 'delivery_unknown')"
SURVIVORS: dict[str, dict[str, str]] = {
    "guard_actions": {
        _OPEN: _REDACTED,
        f"{_OPEN} #2": _REDACTED,
        "n.receipt_state is distinct from o.receipt_state": "no event of a step moves a receipt",
        "limit 1": _INTO,
    },
    "accept_action": {"new.deliver_by is not null": "null is not before now either"},
    "claim_actions": {"q.ordering_key is null": "no other row has the same null"},
    "note_long_line": {"limit 1": _INTO},
    "record_accepted": {"q.kind = 'dispatch'": "only a dispatch is dispatch_started"},
    "record_outcomes": {
        "order by d.action_id": _SORTED_ONCE,
        "order by d.action_id #2": _SORTED_ONCE,
        "if cardinality(v_ids) = jsonb_array_length(p_outcomes)": "for speed: one by one they are told the same",
    },
    "record_resolution": {
        "limit 1": _INTO,
        "when 'found'": "a lookup is what is said of any other event too",
        "v_delivery is null": "no step leads to null",
        "t.from_delivery = v_action.delivery_state": "finished and still queued is unknown",
        "t.actor = 'reconciler'": "these events are nobody else's",
        "t.to_execution = v_execution": _CHOICE,
        "t.to_delivery = v_delivery": _CHOICE,
        "e.used_at is null": "what an open action has is unused",
        "e.provider_id is null": _WEIGHED,
        "p_provider_id is null": _WEIGHED,
        "e.provider_id = p_provider_id": _WEIGHED,
    },
    "begin_replay": {
        "q.kind = 'unknown'": "only what is delivery_unknown is replayed, below",
        "a.delivery_state = 'delivery_unknown'": "its queue row says the same, above",
        "if not found": "without a queue row no claim is in time, below",
    },
    "find_action": {
        "s.idempotency_key = p_key_or_id": _SAME_KEY,
        "s.action_id = (select k.action_id from outbox.keys k where k.idempote...": _SAME_KEY,
        "p_key_or_id ~ '^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$'": "the case beside it looks again",
    },
    "backlog": {
        "where q.kind = 'unknown' #2": "only an unknown is joined with its action",
        "q.kind = 'unknown'": "what is counted is filtered by the same, above",
    },
    "capture_health": {"when pg_is_in_recovery()": "of a standby only, and here is none"},
    "next_dispatch_in": {
        "q.priority = level.priority": "for the index: the least of all levels is the least",
        "q.ordering_key is null": "no other row has the same null",
        "limit 1": "for speed: of all of them the least is taken",
    },
    "check_payload": {
        "2 * octet_length(p_text) - octet_length(replace(p_text, '[', '')) - o...": (
            "for speed: it only spares the walk of the tree"
        ),
    },
    "expected_recipients": {"order by n": "jsonb_array_elements_text gives them in that order"},
    "open_review": {"limit 1": _INTO},
    "weigh_evidence": {
        "e.provider_id is not null": _NULL_IS_NO_OTHER,
        "v_action.provider_id is not null": _NULL_IS_NO_OTHER,
    },
    "audit_actions": {"datatype_mismatch": "no unreadable value that was tried raises it"},
    "redact_settled": {
        "a.redacted_at is null": _BETWEEN,
        "a.redacted_at is null #2": _BETWEEN,
        "a.created_at < v_before": "for the index: what was last changed before was created before",
        "order by a.action_id": _NEVER_WAITS,
    },
    "delete_history": {
        "a.redacted_at is not null": "null is not before any time either",
        "a.history_deleted_at is null": _BETWEEN,
        "a.history_deleted_at is null #2": _BETWEEN,
        "order by a.action_id": _NEVER_WAITS,
    },
    "claim_unknowns": {
        "q.due_at <= v_now": "what is due later comes last, and is looked at again below",
        "not q.evidence_waiting": "what has evidence was taken above, as much as was asked for",
        "limit 16 * p_limit": "for speed: how many are looked at",
        "q.kind = 'unknown' #2": _BETWEEN,
        "q.claim_token is null #3": _BETWEEN,
        "q.due_at <= v_now #2": _BETWEEN,
        "not q.evidence_waiting #2": _BETWEEN,
    },
    "changes": {
        "limit v_limit + 1": "for speed: how many are followed",
        "f.sequence >= l.sequence": "nothing is led by what comes after it",
        "e.sequence <= v_sequence": "one transaction's events of an action follow each other: it holds the row",
    },
    "sweep_expired_claims": {"q.claim_token is not null": "claimed_until is set with a token only"},
}
