"""Write everything that is derived from schemas/states.toml, or with --check say what differs.

The state machine has four kinds of readers: the database, Python, people, and consumers of the status topic. They all
read what this program writes, so they cannot drift apart.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "schemas" / "states.toml"
NOTE = "Generated from schemas/states.toml by tools/generate.py. Do not edit."

Machine = dict[str, Any]


def steps(machine: Machine) -> list[tuple[str, str, str, str, str, str]]:
    """Flatten the transitions to (event, actor, from_execution, from_delivery, to_execution, to_delivery)."""
    return [
        (entry["on"], actor, *origin.split("/"), *target.split("/"))
        for entry in machine["transitions"]
        for actor in entry["by"]
        for origin in entry["from"]
        for target in entry["to"]
    ]


def receipt_steps(machine: Machine) -> list[tuple[str, str, str, str]]:
    """Flatten the receipt transitions to (event, actor, from, to)."""
    return [
        (entry["on"], actor, origin, target)
        for entry in machine["receipt_transitions"]
        for actor in entry["by"]
        for origin in entry["from"]
        for target in entry["to"]
    ]


def pairs(machine: Machine) -> list[tuple[str, str]]:
    """List every legal (execution_state, delivery_state), in the order of first mention."""
    found = dict.fromkeys([("action_created", "delivery_pending")])
    for step in steps(machine):
        found[(step[2], step[3])] = None
        found[(step[4], step[5])] = None
    return list(found)


def record_types(machine: Machine) -> list[str]:
    """List the record types of the status topic: the state reached, a receipt, or a notice."""
    reached = [delivery if execution == "dispatch_finished" else execution for execution, delivery in pairs(machine)]
    receipts = [target for _, _, _, target in receipt_steps(machine)]
    return list(dict.fromkeys([*reached, *receipts, *machine["notices"]]))


def terminal(machine: Machine) -> list[tuple[str, str]]:
    """List the pairs that no transition leaves."""
    left = {(step[2], step[3]) for step in steps(machine)}
    return [pair for pair in pairs(machine) if pair not in left]


def sql(machine: Machine) -> str:
    """Render the rows and checks that the database enforces."""

    def rows(items: list[tuple[str, ...]]) -> str:
        return ",\n".join("  (" + ", ".join(f"'{field}'" for field in item) + ")" for item in items)

    legal = ",\n      ".join("/".join(pair) for pair in pairs(machine))
    receipts = ",".join(machine["receipt_states"])
    return f"""-- {NOTE}
-- Re-applied at every migration: the rows the guard trigger joins, and the checks that make other states impossible.
-- One constant for each check: every statement that writes a row reads its table's checks anew, constant by constant.

truncate outbox.transitions;
insert into outbox.transitions (event, actor, from_execution, from_delivery, to_execution, to_delivery) values
{rows(list(steps(machine)))};

truncate outbox.receipt_transitions;
insert into outbox.receipt_transitions (event, actor, from_receipt, to_receipt) values
{rows(list(receipt_steps(machine)))};

alter table outbox.outbound_actions
  drop constraint if exists outbound_actions_states_check,
  drop constraint if exists outbound_actions_receipt_check;
alter table outbox.outbound_actions
  add constraint outbound_actions_states_check check (execution_state || '/' || delivery_state = any ('{{
      {legal}}}'::text[])),
  add constraint outbound_actions_receipt_check check (receipt_state = any ('{{{receipts}}}'::text[]));
"""


def _enum(name: str, doc: str, members: Iterable[str]) -> str:
    lines = "\n".join(f'    {key.upper()} = "{key}"' for key in members)
    return f'class {name}(StrEnum):\n    """{doc}"""\n\n{lines}\n'


def _enums(machine: Machine) -> list[str]:
    events = dict.fromkeys(step["on"] for step in machine["transitions"])
    receipts = dict.fromkeys(step["on"] for step in machine["receipt_transitions"])
    return [
        _enum("ExecutionState", "What we did.", machine["execution_states"]),
        _enum("DeliveryState", "What is known of the provider.", machine["delivery_states"]),
        _enum("ReceiptState", "What happened after acceptance.", machine["receipt_states"]),
        _enum("Actor", "Who may say that something happened.", machine["actors"]),
        _enum("Event", "What happened to an action.", events),
        _enum("ReceiptEvent", "What the provider reports after acceptance.", receipts),
        _enum("RecordType", "What a record on the status topic announces.", record_types(machine)),
    ]


def _state(execution: str, delivery: str) -> str:
    return f"State(ExecutionState.{execution.upper()}, DeliveryState.{delivery.upper()})"


def _tables(machine: Machine) -> str:
    transitions = "\n".join(
        f"    Transition(Event.{event.upper()}, Actor.{actor.upper()}, {_state(a, b)}, {_state(c, d)}),"
        for event, actor, a, b, c, d in steps(machine)
    )
    receipts = "\n".join(
        f"    ReceiptTransition(ReceiptEvent.{event.upper()}, Actor.{actor.upper()}, "
        f"ReceiptState.{a.upper()}, ReceiptState.{b.upper()}),"
        for event, actor, a, b in receipt_steps(machine)
    )
    meanings = {**machine["execution_states"], **machine["delivery_states"], **machine["receipt_states"]}
    states = "\n".join(f"    {_state(*pair)}," for pair in pairs(machine))
    ends = "\n".join(f"    {_state(*pair)}," for pair in terminal(machine))
    words = "\n".join(f"    {json.dumps(key)}: {json.dumps(value)}," for key, value in meanings.items())
    return f"""STATES: tuple[State, ...] = (
{states}
)

TERMINAL: frozenset[State] = frozenset((
{ends}
))

TRANSITIONS: tuple[Transition, ...] = (
{transitions}
)

RECEIPT_TRANSITIONS: tuple[ReceiptTransition, ...] = (
{receipts}
)

MEANING: dict[str, str] = {{
{words}
}}
"""


def python(machine: Machine) -> str:
    """Render the enumerations and tables that the programs use."""
    return f'''"""The states of an action and the steps between them.

{NOTE}
"""
# ruff: noqa: E501

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


{chr(10).join(text + chr(10) for text in _enums(machine))}
class State(NamedTuple):
    """The two facts that the relay and the reconciler move; a receipt is a third, apart."""

    execution: ExecutionState
    delivery: DeliveryState


class Transition(NamedTuple):
    """One legal step: what happened, who may say so, from where, to where."""

    event: Event
    actor: Actor
    origin: State
    target: State


class ReceiptTransition(NamedTuple):
    """One legal step of the receipt."""

    event: ReceiptEvent
    actor: Actor
    origin: ReceiptState
    target: ReceiptState


{_tables(machine)}'''


def markdown(machine: Machine) -> str:
    """Render the page for people: meanings, the table of steps, and the picture."""

    def table(title: str, entries: dict[str, str]) -> str:
        rows = "\n".join(f"| `{key}` | {value} |" for key, value in entries.items())
        return f"## {title}\n\n| name | meaning |\n| --- | --- |\n{rows}\n"

    def label(pair: tuple[str, str]) -> str:
        return pair[1] if pair[0] == "dispatch_finished" else pair[0]

    lines = [
        f"| {', '.join(f'`{origin}`' for origin in entry['from'])} | {entry['on']} | "
        f"{', '.join(f'`{target}`' for target in entry['to'])} | {', '.join(entry['by'])} | {entry.get('note', '')} |"
        for entry in machine["transitions"]
    ]
    arrows = dict.fromkeys(f"  {label((a, b))} --> {label((c, d))}: {event}" for event, _, a, b, c, d in steps(machine))
    ends = [f"  {label(pair)} --> [*]" for pair in terminal(machine)]
    receipts = [f"| `{a}` | {event} | `{b}` | {actor} |" for event, actor, a, b in receipt_steps(machine)]
    return "\n".join(
        [
            "# The states of an action",
            "",
            f"<!-- {NOTE} -->",
            "",
            'Three independent facts describe an action. None is ever folded into a "done" flag.',
            "",
            table("execution_state: what we did", machine["execution_states"]),
            table("delivery_state: what is known of the provider", machine["delivery_states"]),
            table("receipt_state: what happened after acceptance", machine["receipt_states"]),
            table("Notices on the status topic without a change of state", machine["notices"]),
            "## Every legal step\n",
            "| from | event | to | who | note |\n| --- | --- | --- | --- | --- |",
            *lines,
            "\n## Receipts\n\n| from | event | to | who |\n| --- | --- | --- | --- |",
            *receipts,
            "\n## Picture\n\n```mermaid\nstateDiagram-v2\n  [*] --> action_created: inserted",
            *arrows,
            *ends,
            "```\n",
        ]
    )


def topic_enums(machine: Machine) -> str:
    """Render the enumerations that the schemas of the status topic refer to."""
    names = {
        "execution_state": machine["execution_states"],
        "delivery_state": machine["delivery_states"],
        "receipt_state": machine["receipt_states"],
        "record_type": record_types(machine),
        "event": [
            "inserted",
            *(e["on"] for e in machine["transitions"] + machine["receipt_transitions"]),
            *machine["notices"],
        ],
    }
    return (
        json.dumps(
            {
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "$id": "outbox-relay:/topics/v1/states.schema.json",
                "$comment": NOTE,
                "$defs": {
                    name: {"type": "string", "enum": list(dict.fromkeys(values))} for name, values in names.items()
                },
            },
            indent=2,
        )
        + "\n"
    )


def main(arguments: list[str]) -> int:
    """Write the derived files; with --check only compare, and return 1 when one differs."""
    machine = tomllib.loads(SOURCE.read_text())
    outputs = {
        ROOT / "schemas" / "ledger" / "states.sql": sql(machine),
        ROOT / "outbox_relay" / "states.py": python(machine),
        ROOT / "docs" / "states.md": markdown(machine),
        ROOT / "schemas" / "topics" / "states.schema.json": topic_enums(machine),
    }
    stale = [path for path, text in outputs.items() if not path.exists() or path.read_text() != text]
    if "--check" in arguments:
        for path in stale:
            print(
                f"{path.relative_to(ROOT)} is not what schemas/states.toml gives: run `make generate`", file=sys.stderr
            )
        return 1 if stale else 0
    for path in stale:
        path.write_text(outputs[path])
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
