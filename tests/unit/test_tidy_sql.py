"""A mistake in a SQL file is found without a server, also inside a function's body."""

from pathlib import Path

import pytest

from tools.parse_sql import problem

BODY = "create function outbox.f() returns int language plpgsql as $$\n{}\n$$;\n"


def judged(folder: Path, text: str) -> str | None:
    path = folder / "a.sql"
    path.write_text(text)
    return problem(path)


@pytest.mark.parametrize(
    "text",
    [
        "create tabel a (b int);",
        BODY.format("begin retrun 1; end"),
        BODY.format("declare v_a int begin return 1; end"),
        "grant select on outbox.a to {agent},;",
    ],
)
def test_a_typo_is_found(tmp_path: Path, text: str) -> None:
    assert "syntax error" in str(judged(tmp_path, text))


@pytest.mark.parametrize(
    "text",
    [
        BODY.format("declare v_a outbox.outbound_actions; begin return v_a.attempt_count; end"),
        "grant select on outbox.a to {agent}, {relay};",
        "-- nothing\n",
    ],
)
def test_correct_sql_passes(tmp_path: Path, text: str) -> None:
    assert judged(tmp_path, text) is None
