"""Functions of the ledger with one condition dropped: what a test must notice, or nothing holds that condition.

A mutant is made from the function's own file, so a new condition gets its mutants without being listed anywhere. Of
conditions joined by and, or each is dropped in turn; one that stands alone filters nothing or is never true; an order,
a limit, a lock and what follows a conflict are left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

LEDGER = Path(__file__).resolve().parents[2] / "schemas" / "ledger"
_TOKEN = re.compile(
    r"--[^\n]*|'(?:[^']|'')*'|\$\$|\bon conflict\b|\border by\b|\bfor (?:no key )?update\b"
    r"|\b(?:left|full|cross|inner) join\b|[A-Za-z_][\w.]*|:=|[(),;]",
    re.IGNORECASE,
)
_BOUNDARIES = re.compile(
    r"where|on|if|elsif|when|then|else|loop|order by|limit|for|for update|for no key update|returning|group|window"
    r"|union|select|begin|end|declare|as|using|return|join|left join|full join|cross join|inner join|on conflict"
    r"|:=|,|;|\$\$"
)
"""Words between which no condition reaches. Not `from`, which is a part of `is distinct from`."""
_ALONE = {"where": "true", "on": "true", "if": "false", "elsif": "false", "when": "false"}
"""What stands for a condition that was alone after this word: a filter lets all through, a branch is never taken."""
_CLAUSES = {
    "order by": "",
    "limit": "",
    "for update": "",
    "for no key update": "",
    "on conflict": "as,using,select,where,on",
}
"""What is dropped as a whole, and the words that do not end it (besides a comma, where it may hold a list)."""
_LONGEST = 72


@dataclass(frozen=True, slots=True)
class Mutant:
    """A function without one of its conditions; `condition` names it among those of its function."""

    function: str
    number: int
    condition: str
    definition: str

    def __str__(self) -> str:
        """Its name in a test's id and in a report."""
        return f"{self.function}-{self.number}"


@dataclass(frozen=True, slots=True)
class _Drop:
    """Where a condition is, what goes with it, and what comes instead."""

    first: int
    last: int
    gone: int
    gone_until: int
    word: str = ""
    instead: str = ""


@dataclass(slots=True)
class _Chain:
    """Conditions joined by and, or: where each stands, what joins it to the next, and the word before the first."""

    closes: str
    start: int
    word: str
    atoms: list[tuple[int, int]] = field(default_factory=list)
    joints: list[str] = field(default_factory=list)
    clause: tuple[str, int] | None = None
    simple: bool = False
    between: bool = False

    def join(self, word: str, start: int, end: int) -> None:
        """A word was read that joins two conditions, or the two ends of a `between`."""
        if word != "between" and not self.between:
            self.atoms.append((self.start, start))
            self.joints.append(word)
            self.start = end
        self.between = word == "between"

    def begin(self, text: str, word: str, token: re.Match[str]) -> None:
        """A word was read that no condition reaches across."""
        if word == "when" and self.word == "case":
            self.simple = bool(text[self.start : token.start()].strip())
        self.word, self.start = word, token.end()
        if word in _CLAUSES:
            self.clause = (word, token.start())

    def finish(self, text: str, end: int, word: str) -> Iterator[_Drop]:
        """What ends before this word."""
        if self.clause is not None:
            kind, start = self.clause
            if word not in (",", *_CLAUSES[kind].split(",")):
                yield _Drop(start, end, start, end)
                if locked := re.search(r"\bskip locked\b", text[start:end]):
                    yield _Drop(start + locked.start(), end, start + locked.start(), end)
                self.clause = None
        elif self.joints:
            yield from self._joined(end)
        elif self.word in _ALONE and text[self.start : end].strip():
            instead = "null" if self.word == "when" and self.simple else _ALONE[self.word]
            yield _Drop(self.start, end, self.start, end, self.word, f" {instead} ")
        self.atoms, self.joints = [], []

    def _joined(self, end: int) -> Iterator[_Drop]:
        atoms = [*self.atoms, (self.start, end)]
        for place, (first, last) in enumerate(atoms):
            # `and` binds closer: b of `a or b and c` goes with its `and`.
            with_next = place == 0 or (self.joints[place - 1] == "or" and self.joints[place : place + 1] == ["and"])
            yield _Drop(first, last, *((first, atoms[place + 1][0]) if with_next else (atoms[place - 1][1], last)))


def functions() -> set[str]:
    """Every file that holds a function of the ledger."""
    return {path.stem for path in (LEDGER / "functions").glob("*.sql")}


def mutants(function: str) -> list[Mutant]:
    """Every mutant of a function, or of the views, in the order of its conditions."""
    path = LEDGER / "views.sql" if function == "views" else LEDGER / "functions" / f"{function}.sql"
    text = path.read_text(encoding="utf-8")
    seen: Counter[str] = Counter()
    found = []
    for number, drop in enumerate(sorted(_conditions(text), key=lambda drop: (drop.first, drop.last))):
        name = " ".join(f"{drop.word} {text[drop.first : drop.last]}".split())
        name = name if len(name) <= _LONGEST else f"{name[: _LONGEST - 3]}..."
        seen[name] += 1
        name = name if seen[name] == 1 else f"{name} #{seen[name]}"
        definition = f"{text[: drop.gone]} {drop.instead}{text[drop.gone_until :]}"
        found.append(Mutant(function, number, name, definition))
    return found


def _conditions(text: str) -> Iterator[_Drop]:
    open_chains = [_Chain("", 0, "")]
    # The head of a function has words of its own: `drop function if exists`, `set enable_hashjoin = on`.
    for token in _TOKEN.finditer(text, max(text.find("$$"), 0)):
        word, chain = token.group().lower(), open_chains[-1]
        if word in ("(", "case"):
            open_chains.append(_Chain(")" if word == "(" else "end", token.end(), word))
        elif word == chain.closes:
            yield from chain.finish(text, token.start(), word)
            open_chains.pop()
        elif word in ("and", "or", "between"):
            if not text[: token.start()].rstrip().lower().endswith("create"):
                chain.join(word, token.start(), token.end())
        elif _BOUNDARIES.fullmatch(word):
            yield from chain.finish(text, token.start(), word)
            chain.begin(text, word, token)
