"""How commands speak: a table or JSON on stdout, complaints and progress on stderr. Honours NO_COLOR."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from rich.console import Console
from rich.markup import escape
from rich.table import Table

_talk = Console(stderr=True, highlight=False)
_data = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 240)


class Format(StrEnum):
    """What `--output` takes."""

    TABLE = "table"
    JSON = "json"


_chosen = [Format.TABLE]


def set_format(chosen: Format) -> None:
    """Remember the format for this run."""
    _chosen[0] = chosen


def wants_json() -> bool:
    """Tell whether the data goes to a program."""
    return _chosen[0] is Format.JSON


def say(text: str) -> None:
    """Talk to the person: progress, and what was done."""
    _talk.print(escape(text))


def complain(text: str, hint: str | None) -> None:
    """Say what went wrong and what to do."""
    _talk.print(f"[red]error:[/red] {escape(text)}")
    if hint:
        _talk.print(f"[yellow]hint:[/yellow] {escape(hint)}")


def _plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _fields(item: object) -> Mapping[str, object]:
    if is_dataclass(item) and not isinstance(item, type):
        return asdict(item)
    if isinstance(item, Mapping):
        return item
    raise TypeError(f"{type(item).__name__} is not a row")


def show_json(value: object) -> None:
    """Print one JSON document."""
    sys.stdout.write(json.dumps(value, default=_plain, ensure_ascii=False, indent=2) + "\n")


def show_rows(items: Sequence[object], columns: Sequence[str], *, empty: str) -> None:
    """Print rows: all fields as JSON, or the named columns as a table."""
    rows = [_fields(item) for item in items]
    if wants_json():
        show_json(rows)
        return
    if not rows:
        say(empty)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(escape(_cell(row[column])) for column in columns))
    _data.print(table)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="seconds")
    return str(value)


def show_fields(item: object, *, title: str) -> None:
    """Print one thing, a field a line."""
    say(title)
    for name, value in _fields(item).items():
        _data.print(f"  {name:<20} {escape(_cell(value))}")
