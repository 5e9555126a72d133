"""The house rules that no linter knows, each with the reason it exists.

Run by `make check` and as a test (tests/unit/test_tidy.py). It only reads; it judges every file that git would commit.
A rule that makes a file worse is changed here, with its reason, and never worked around there.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent

FUNCTION_LINES = 70
FILE_LINES = 300
TEST_LINES = 500  # tables of cases, read one case at a time
SQL_LINES = 120
GENERATED_MARK = "Generated from "

BANNED_MODULES = frozenset({
    "base", "common", "core", "helper", "helpers", "manager", "managers", "misc", "service", "services", "shared",
    "util", "utils",
})  # fmt: skip

MAY_SPEAK_SQL = (
    "outbox_relay/ledger/",
    "outbox_relay/local/",  # sets the stack up, and plays the agent of the demo
    "outbox_relay/trial/",  # plays the agent, keeps the provider's own book
    "tests/",
    "examples/",  # what an agent would write
    "bench/",
    "tools/generate.py",  # writes schemas/ledger/states.sql
)

# Spelled in halves, so that this file does not find itself.
MARKERS = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK|WI" + r"P)\b")
CONFLICT = re.compile(r"^(?:<{7}|>{7}|={7})(?: |$)", re.MULTILINE)
STATEMENT = re.compile(
    r"^\s*(?:select\s.+\s?from\s|select\s+\w+\.\w+\(|insert\s+into\s|update\s+[\w.]+\s+set\s|delete\s+from\s|"
    r"(?:create|alter|drop)\s+(?:table|role|function|publication|database|schema|index)\s|truncate\s+[\w.]+|copy\s+[\w.]+\s)",
    re.IGNORECASE | re.DOTALL,
)
PLACES = re.compile(
    r"(?:[/.](?:pypi|pythonhosted|npmjs|crates)\.(?:org|io)|registry\.npm|repo1?\.maven|proxy\.golang|deb\.debian)"
    r"|(?<![\w./-])/(?:work|root|home/\w+)/|--(?:extra-)?in"
    r"dex-url",
    re.IGNORECASE,
)
OWN_CLOCK = (
    "outbox_relay/trial/",  # a simulated provider has a clock of its own, as a real one has
    "outbox_relay/capture/wakeups.py",  # the age of a record, to skip old wake-ups
    "tests/flow/test_capture_wakeups.py",  # makes such records
)
CLOCKS = frozenset({"time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "datetime.today", "date.today"})
CLOCK_CALLS = frozenset(name.partition(".")[2] for name in CLOCKS)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of the project: its path from the root, with slashes, and its text."""

    path: str
    text: str

    @property
    def suffix(self) -> str:
        """The ending of the name, with its dot."""
        return PurePosixPath(self.path).suffix

    @property
    def generated(self) -> bool:
        """Whether another file is the source of this one, and says so in its first lines."""
        return GENERATED_MARK in self.text[:600]

    @property
    def lines(self) -> int:
        """How many lines it has."""
        return len(self.text.splitlines())


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken rule: where, and what to do."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


Rule = Callable[[SourceFile], Iterator[Finding]]


def module_names(source: SourceFile) -> Iterator[Finding]:
    """A module called after nothing collects everything: file a thing under its noun."""
    if source.suffix != ".py":
        return
    path = PurePosixPath(source.path)
    for name in (*path.parts[:-1], path.stem):
        if name.strip("_") in BANNED_MODULES:
            yield Finding(source.path, 1, f"no module is called {name!r}: name it after what it holds")


def function_length(source: SourceFile) -> Iterator[Finding]:
    """A function that does not fit on a screen cannot be checked by reading it."""
    for node in walked(source.text):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES:
                yield Finding(source.path, node.lineno, f"{node.name} has {lines} lines, at most {FUNCTION_LINES}")


def file_length(source: SourceFile) -> Iterator[Finding]:
    """A file is read as one thought; generated ones are read by programs."""
    python_limit = TEST_LINES if source.path.startswith("tests/") else FILE_LINES
    limit = {".py": python_limit, ".sql": SQL_LINES}.get(source.suffix)
    if limit and source.lines > limit and not source.generated and "/migrations/" not in source.path:
        yield Finding(source.path, limit, f"{source.lines} lines, at most {limit}: split it by noun")


def one_clock(source: SourceFile) -> Iterator[Finding]:
    """Two clocks disagree: what is true about time is asked of PostgreSQL."""
    if source.path.startswith(OWN_CLOCK):
        return
    for node in walked(source.text):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CLOCK_CALLS:
            name = ".".join(ast.unparse(node.func).split(".")[-2:])
            if name in CLOCKS:
                yield Finding(
                    source.path, node.lineno, f"{name}() is this machine's clock: ask the database, or measure"
                )


def sql_in_its_place(source: SourceFile) -> Iterator[Finding]:
    """The guard, the fences and the lock order can be reviewed only when every statement is in one package."""
    if source.path.startswith(MAY_SPEAK_SQL):
        return
    docstrings = documentation(walked(source.text))
    for node in walked(source.text):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in docstrings:
            continue
        if STATEMENT.match(node.value):
            yield Finding(source.path, node.lineno, "SQL outside outbox_relay/ledger: call a method of the ledger")


def leftovers(source: SourceFile) -> Iterator[Finding]:
    """A promise to finish later belongs to the issue tracker, where somebody sees it."""
    for number, line in enumerate(source.text.splitlines(), start=1):
        if match := MARKERS.search(line):
            yield Finding(source.path, number, f"leftover marker {match[0]}: do it, or file an issue and name it")
    if match := CONFLICT.search(source.text):
        yield Finding(source.path, source.text.count("\n", 0, match.start()) + 1, "leftover merge conflict")


def no_places(source: SourceFile) -> Iterator[Finding]:
    """A clone works anywhere: with any mirror of the registries, in any directory."""
    for number, line in enumerate(source.text.splitlines(), start=1):
        if match := PLACES.search(line):
            yield Finding(
                source.path, number, f"{match[0]!r} is an address or a path of one machine: leave it to settings"
            )


PYTHON_RULES: tuple[Rule, ...] = (module_names, function_length, one_clock, sql_in_its_place)
TEXT_RULES: tuple[Rule, ...] = (file_length, leftovers, no_places)


@cache
def walked(text: str) -> tuple[ast.AST, ...]:
    """Parse a Python file and flatten its tree, once."""
    return tuple(ast.walk(ast.parse(text)))


def documentation(nodes: tuple[ast.AST, ...]) -> set[int]:
    """Find the strings that stand alone as statements: docstrings, which may talk about SQL."""
    return {id(node.value) for node in nodes if isinstance(node, ast.Expr)}


def check(source: SourceFile) -> list[Finding]:
    """Apply every rule that fits the kind of file."""
    rules = TEXT_RULES + (PYTHON_RULES if source.suffix == ".py" else ())
    try:
        return [finding for rule in rules for finding in rule(source)]
    except SyntaxError as error:
        return [Finding(source.path, error.lineno or 1, f"cannot be parsed: {error.msg}")]


def project_files(root: Path) -> Iterator[SourceFile]:
    """Yield every text file that is, or would be, committed."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    for name in sorted(filter(None, listed.split("\0"))):
        file = root / name
        if file.is_file() and not file.is_symlink():
            try:
                yield SourceFile(name, file.read_text(encoding="utf-8"))
            except UnicodeDecodeError:
                continue  # a picture or an archive


def main() -> int:
    """Print every finding; 0 when there is none."""
    findings = [finding for source in project_files(ROOT) for finding in check(source)]
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
