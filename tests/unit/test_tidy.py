"""The house rules hold for the whole project, and each of them is able to find what it looks for."""

import pytest

from tools import tidy

LONG_FUNCTION = "def f():\n" + "    x = 1\n" * (tidy.FUNCTION_LINES + 1)


def found(path: str, text: str) -> list[str]:
    return [str(finding) for finding in tidy.check(tidy.SourceFile(path, text))]


def test_every_file_keeps_the_house_rules() -> None:
    broken = [str(finding) for source in tidy.project_files(tidy.ROOT) for finding in tidy.check(source)]
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("outbox_relay/utils.py", "", "no module is called 'utils'"),
        ("outbox_relay/common/claims.py", "", "no module is called 'common'"),
        ("reconciler/loop.py", LONG_FUNCTION, "f has 72 lines, at most 70"),
        ("reconciler/loop.py", "x = 1\n" * 301, "301 lines, at most 300"),
        ("schemas/ledger/functions/claim.sql", "select 1;\n" * 121, "121 lines, at most 120"),
        ("outbox_relay/a.py", "from datetime import datetime, UTC\nx = datetime.now(UTC)\n", "a.py:2: datetime.now()"),
        ("outbox_relay/a.py", "import datetime\nx = datetime.datetime.now()\n", "datetime.now()"),
        ("outbox_relay/a.py", "import time\nx = time.time()\n", "time.time()"),
        ("reconciler/a.py", 'q = "select a from outbox.b"\n', "SQL outside"),
        ("reconciler/a.py", 'q = """\n  INSERT INTO outbox.b (c) VALUES (1)"""\n', "SQL outside"),
        ("reconciler/a.py", 'q = f"update outbox.b set c = {1}"\n', "SQL outside"),
        ("reconciler/a.py", 'q = "select outbox.cancel(%s)"\n', "SQL outside"),
        ("docs/a.md", "later: TO" + "DO\n", "leftover marker"),
        ("docs/a.md", "a\n<<<<<<< ours\n", "a.md:2: leftover merge conflict"),
        ("requirements/a.txt", "--index" + "-url https://mirror.example/simple\n", "leave it to settings"),
        ("docs/a.md", "run it in /wo" + "rk/main\n", "leave it to settings"),
        ("outbox_relay/a.py", "def f(:\n", "cannot be parsed"),
    ],
)  # fmt: skip
def test_a_planted_violation_is_found(path: str, text: str, expected: str) -> None:
    assert any(expected in finding for finding in found(path, text)), found(path, text)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("outbox_relay/ledger/claims.py", 'q = "select a from outbox.b"\n'),
        ("tests/ledger/test_a.py", 'q = "insert into outbox.b values (1)"\n'),
        ("reconciler/a.py", '"""Select what is due from the ledger."""\n'),
        ("reconciler/a.py", 'help = "select one of the accounts"\nprint("update: nothing to set")\n'),
        ("outbox_relay/a.py", "import time\nx = time.monotonic()\n"),
        ("outbox_relay/states.py", '"""Generated from a.toml."""\n' + "x = 1\n" * 400),
        ("requirements/a.txt", "# uv pip compile --no-emit-index-url\n"),
        ("docs/a.md", "the net/work/ of a home; https://api.example/root/x\n"),
    ],
)
def test_what_is_allowed_is_left_alone(path: str, text: str) -> None:
    assert not found(path, text)
