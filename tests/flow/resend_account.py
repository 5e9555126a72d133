"""Declares the one operation that the examples and the topic's tests use, as an administrator would by hand."""

from __future__ import annotations

from typing import Any

import psycopg


def declare_resend(owner: psycopg.Connection[Any], *, receipts_expected: bool = False, retry_limit: int = 8) -> None:
    """Let a ledger accept emails.send of resend in account default, unless it does already."""
    owner.execute(
        """
        insert into outbox.providers (provider, account, operation, mode, contract_version, base_url, account_identity,
          key_max_length, key_pattern, key_shared, recipient_paths, payload_max_bytes, retry_limit, receipts_expected,
          review_owner)
        values ('resend', 'default', 'emails.send', 'live', '1', 'https://api.resend.com', 'test', 256, '[!-~]+', false,
          '[["to"], ["to", "0"]]', 1048576, %s, %s, 'test')
        on conflict (provider, account, operation) do update
          set retry_limit = excluded.retry_limit, receipts_expected = excluded.receipts_expected
        """,
        (retry_limit, receipts_expected),
    )
