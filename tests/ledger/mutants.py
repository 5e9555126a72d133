"""Functions of the ledger with one condition dropped: what a test must notice, or nothing holds that condition.

A mutant is made from the function's own file, so a new condition gets its mutants without being listed anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

FUNCTIONS = Path(__file__).resolve().parents[2] / "schemas" / "ledger" / "functions"
_TOKEN = re.compile(r"--[^\n]*|'(?:[^']|'')*'|\$\$|[A-Za-z_][\w.]*|:=|[(),;]")
_BOUNDARIES = re.compile(
    r"where|on|if|elsif|when|then|else|loop|order|limit|for|returning|group|select|begin|end|declare|as|using|return"
    r"|:=|,|;|\$\$"
)
"""Words between which no condition reaches. Not `from`, which is a part of `is distinct from`."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A function without one of its conditions."""

    function: str
    number: int
    dropped: str
    definition: str

    def __str__(self) -> str:
        """Its name in a test's id and in a report."""
        return f"{self.function}-{self.number}"


@dataclass(slots=True)
class _Chain:
    """Conditions joined by and, or: where each stands, and what joins it to the next."""

    closes: str
    start: int
    atoms: list[tuple[int, int]] = field(default_factory=list)
    joints: list[str] = field(default_factory=list)

    def join(self, word: str, start: int, end: int) -> None:
        self.atoms.append((self.start, start))
        self.joints.append(word)
        self.start = end

    def finish(self, end: int) -> Iterator[tuple[int, int, int, int]]:
        """Each condition: where it is, and what goes when it is dropped."""
        if self.joints:
            atoms = [*self.atoms, (self.start, end)]
            for place, (first, last) in enumerate(atoms):
                # `and` binds closer: b of `a or b and c` goes with its `and`.
                with_next = place == 0 or (self.joints[place - 1] == "or" and self.joints[place : place + 1] == ["and"])
                yield first, last, *((first, atoms[place + 1][0]) if with_next else (atoms[place - 1][1], last))
        self.atoms, self.joints = [], []


def mutants(function: str) -> list[Mutant]:
    """Every mutant of a function, in the order of its conditions."""
    text = (FUNCTIONS / f"{function}.sql").read_text(encoding="utf-8")
    return [
        Mutant(function, number, " ".join(text[first:last].split()), f"{text[:gone]} {text[gone_until:]}")
        for number, (first, last, gone, gone_until) in enumerate(sorted(_conditions(text)))
    ]


def _conditions(text: str) -> Iterator[tuple[int, int, int, int]]:
    open_chains = [_Chain("", 0)]
    for token in _TOKEN.finditer(text):
        word, chain = token.group().lower(), open_chains[-1]
        if word in ("(", "case"):
            open_chains.append(_Chain(")" if word == "(" else "end", token.end()))
        elif word == chain.closes:
            yield from chain.finish(token.start())
            open_chains.pop()
        elif word in ("and", "or"):
            if text[: token.start()].rstrip().lower().endswith("create") and word == "or":
                continue
            chain.join(word, token.start(), token.end())
        elif _BOUNDARIES.fullmatch(word):
            yield from chain.finish(token.start())
            chain.start = token.end()
