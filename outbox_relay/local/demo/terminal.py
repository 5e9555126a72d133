"""How the demonstration speaks: what happens as it happens, and the table at the end. Honours NO_COLOR."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from outbox_relay.local.demo.verdict import Verdict


class Terminal:
    """Lines with the time since the start; safe to use from the witness's thread."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 110)
        self._started = time.monotonic()
        self._lock = threading.Lock()

    def _print(self, text: str) -> None:
        with self._lock:
            self._console.print(f"[dim]{time.monotonic() - self._started:6.1f} s[/dim]  {text}")

    def progress(self, text: str) -> None:
        """What is being set up or downloaded."""
        self._print(f"[dim]{escape(text)}[/dim]")

    def act(self, text: str) -> None:
        """A new part of the story."""
        with self._lock:
            self._console.print()
        self._print(f"[bold]{escape(text)}[/bold]")

    def does(self, who: str, what: str) -> None:
        """Somebody does something."""
        self._print(f"  [cyan]{escape(who):<12}[/cyan] {escape(what)}")

    def status(self, key: str, state: str, detail: str) -> None:
        """A record that an independent reader saw."""
        color = {"delivery_unknown": "yellow", "delivery_confirmed": "green", "reconciled_confirmed": "green"}
        self._print(
            f"  [magenta]{'status':<12}[/magenta] {escape(key)}  [{color.get(state, 'blue')}]{state}[/] {detail}"
        )

    def complain(self, text: str, hint: str | None) -> None:
        """What went wrong and what to do."""
        self._print(f"[red]error:[/red] {escape(text)}" + (f"\n          hint: {escape(hint)}" if hint else ""))

    def verdict(self, verdict: Verdict, report: Path) -> None:
        """The ledger against the provider's own book."""
        table = Table(title="the ledger against the provider's own book", title_justify="left")
        for column in ("action", "provider", "ledger says", "attempts", "requests", "effects", ""):
            table.add_column(column, no_wrap=True)
        for line in verdict.lines:
            table.add_row(
                escape(line.key),
                line.provider,
                line.says,
                str(line.attempts),
                str(line.requests),
                str(line.effects),
                "[green]agrees[/green]" if line.agrees else "[red]DISAGREES[/red]",
            )
        with self._lock:
            self._console.print()
            self._console.print(table)
            for problem in verdict.problems:
                self._console.print(f"[red]{escape(problem)}[/red]")
            result = "[green]they agree[/green]" if verdict.ok else "[red]they do not agree[/red]"
            self._console.print(f"{result}; the same as JSON: {escape(str(report))}")

    def keep(self, addresses: dict[str, str]) -> None:
        """What runs on, and how to look at it."""
        with self._lock:
            self._console.print("\neverything runs on until Ctrl-C:")
            for name, value in addresses.items():
                self._console.print(f"  {name:<22} {escape(value)}")
