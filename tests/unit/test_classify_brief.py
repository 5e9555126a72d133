"""The short ways of classifying say what the long ones say."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from outbox_relay.attempt.classify import classify
from outbox_relay.attempt.reading import ReadAnswer, search
from outbox_relay.attempt.render import render
from outbox_relay.providers.exchange import Answer
from tests.unit.attempts import CONTRACTS, account_of, answered, claim_of


def test_the_brief_evidence_of_an_acceptance_still_proves_it() -> None:
    """It is what is left if the acceptance comes too late: attempt, status and the provider's id must be there."""
    contract = CONTRACTS["resend"]
    account = account_of(contract)
    request = render(claim_of(account, "emails.send"), contract, account)
    operation = contract.operations["emails.send"]
    kept = classify(answered(200, {"id": "e_1"}), operation, request, attempt=3, brief=True).evidence
    assert (kept.kind, kept.proves, kept.attempt, kept.status, kept.provider_id) == (
        "response",
        "acceptance",
        3,
        200,
        "e_1",
    )
    refused = answered(422, {"name": "validation_error"})
    whole = classify(refused, operation, request, attempt=3)
    assert classify(refused, operation, request, attempt=3, brief=True) == whole


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.dictionaries(st.sampled_from(["id", "data", "get", "x"]), inner) | st.lists(inner),
    )
)
def test_a_plain_path_reads_what_jmespath_reads(body: Any) -> None:
    read = ReadAnswer(Answer(200, {}, json.dumps(body).encode(), complete=True))
    for expression in ("body.id", "body.data.id", "body.get", "body.data.x.id"):
        assert read.read(expression) == search(expression, read.document)
