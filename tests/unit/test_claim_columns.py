"""Claims are made from rows by position."""

from __future__ import annotations

from outbox_relay.ledger.claims import SELECT_CLAIMS
from outbox_relay.ledger.records import Claim


def test_the_columns_of_a_claim_stand_in_the_order_of_its_fields() -> None:
    names = SELECT_CLAIMS.removeprefix("select ").replace(" ", "").split(",")
    assert names == list(Claim.__dataclass_fields__)
