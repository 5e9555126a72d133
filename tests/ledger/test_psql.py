"""What a person or a shell script sends with psql, under the agent's role alone."""

from __future__ import annotations

import os
import subprocess

import pytest

from outbox_relay.local.postgres import _wheel_bindir
from tests.ledger.factories import Stage

COLUMNS = "provider, operation, idempotency_key, payload"
VALUES = '\'{"to": "a@example.com", "text": "hello"}\''
ONE = f"insert into outbox.outbound_actions ({COLUMNS}) values ('mail', 'send', 'k1', {VALUES})"
COPY = f"""\\copy outbox.outbound_actions ({COLUMNS}) from pstdin csv
mail,send,k1,"{{""to"": ""a@example.com"", ""text"": ""hello""}}"
\\.
"""
OTHER = ONE.replace("hello", "other")


def psql(stage: Stage, script: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a script; it stops at the first error that no savepoint holds."""
    environ = {"PATH": os.environ["PATH"], "PGOPTIONS": "", "PSQLRC": os.devnull}
    command = [
        str(_wheel_bindir() / "psql"),
        "-X",
        "-q",
        "-A",
        "-t",
        "-v",
        "ON_ERROR_STOP=1",
        "-v",
        "VERBOSITY=verbose",
    ]
    command += ["-d", stage.ledger.dsn("agent")]
    return subprocess.run(command, input=script, env=environ, capture_output=True, text=True, timeout=60, check=check)


@pytest.mark.parametrize(
    "script",
    [
        f"{ONE};",
        f"{ONE}, ('mail', 'send', 'k1', {VALUES});",
        f"{ONE} on conflict do nothing;",
        f"{ONE} on conflict (idempotency_key) do nothing;",
        f"{ONE} returning action_id;",
        f"begin; savepoint s; {ONE}; release s; commit;",
        COPY,
        f"select delivery_state from outbox.enqueue('mail', 'send', 'k1', {VALUES});",
        f"prepare i as {ONE}; execute i;",
    ],
)
def test_every_statement_adds_one_action_however_often(stage: Stage, script: str) -> None:
    psql(stage, script)
    psql(stage, script)
    assert stage.rows("owner", "select idempotency_key, payload ->> 'text' as text from outbox.outbound_actions") == [
        {"idempotency_key": "k1", "text": "hello"}
    ]


def test_another_intent_is_refused_with_what_to_do_and_a_savepoint_goes_on(stage: Stage) -> None:
    action = stage.insert("k1")
    refused = psql(stage, f"begin; {OTHER}; commit;", check=False)
    assert refused.returncode != 0
    assert "OB001" in refused.stderr
    assert str(action) in refused.stderr
    assert "HINT" in refused.stderr
    new = ONE.replace("'k1'", "'k2'")
    psql(stage, f"\\set ON_ERROR_STOP 0\n\\set ON_ERROR_ROLLBACK on\nbegin; {OTHER}; {new}; commit;")
    keys = stage.rows("owner", "select idempotency_key as key from outbox.outbound_actions order by 1")
    assert [row["key"] for row in keys] == ["k1", "k2"]
