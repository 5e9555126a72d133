"""Parse every given SQL file with PostgreSQL's own grammar, function bodies included.

No server is asked: a typo is found in a second, not when a migration runs. What only a server knows (whether a table
exists) is left to the tests in tests/ledger.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pglast
from pglast.parser import ParseError

ROLE = re.compile(r"\{(agent|relay|reconciler|operator|capture)\}")
"""Where `outbox migrate` puts the name of a role."""


def problem(path: Path) -> str | None:
    """Say what is wrong with one file, with its line, or None."""
    text = ROLE.sub(r"\1", path.read_text(encoding="utf-8"))
    try:
        for statement in pglast.parse_sql(text):
            body = text.encode()[statement.stmt_location :][: statement.stmt_len or None].decode()
            if type(statement.stmt).__name__ == "CreateFunctionStmt" and "plpgsql" in body.lower():
                # Without a server only types of `public` are known as such.
                pglast.parse_plpgsql(body.replace("outbox.", "public."))
    except ParseError as error:
        message, location = error.args[0], error.location if hasattr(error, "location") else 0
        return f"{path}:{text.count(chr(10), 0, location or 0) + 1}: {message}"
    return None


def main(names: list[str]) -> int:
    """Print every problem; 0 when there is none."""
    problems = [found for name in names if (found := problem(Path(name)))]
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
