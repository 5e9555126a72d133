"""A simulated provider as seen by a supervisor: the process, its admin paths, its book."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from outbox_relay.errors import ConditionNotMet
from outbox_relay.trial.book import Book
from outbox_relay.trial.faults import Fault
from outbox_relay.trial.processes import HttpProgram, LogLine, start_python


class SimulatedProvider:
    """Start it with `start`; leave the context to end it. The book stays readable afterwards."""

    def __init__(self, contract: str, program: HttpProgram, book: Book) -> None:
        self.contract = contract
        self.program = program
        self.book = book

    @classmethod
    @contextmanager
    def start(
        cls,
        contract: str,
        *,
        folder: Path,
        contracts_dir: Path | None = None,
        seed: int = 1,
        fault: Fault | None = None,
        name: str | None = None,
        port: int = 0,
        operations: Sequence[str] = (),
    ) -> Iterator[Self]:
        """Start the process and wait until it listens. `name` tells two of one contract apart."""
        name = name or f"provider-{contract}"
        book_path = folder / f"{name}.book"
        arguments = ["--contract", contract, "--book", str(book_path), "--seed", str(seed), "--port", str(port)]
        arguments += [word for operation in operations for word in ("--operation", operation)]
        if contracts_dir is not None:
            arguments += ["--contracts-dir", str(contracts_dir)]
        if fault is not None:
            arguments += ["--fault", fault.value]
        module = "outbox_relay.trial.provider"
        with start_python(name, module, folder=folder, env={}, arguments=arguments) as program:
            program.wait_for("listening")
            yield cls(contract, program, Book(book_path))

    @property
    def url(self) -> str:
        """The base URL for an account."""
        return self.program.url

    def spoil(
        self,
        fault: Fault,
        *,
        times: int | None = 1,
        kind: str = "operation",
        key: str | None = None,
        key_prefix: str | None = None,
        nth: int | None = None,
        **details: float | str,
    ) -> None:
        """Order a fault; `details` are the other fields of FaultRule. The newest matching order wins."""
        chosen = {"key": key, "key_prefix": key_prefix, "nth": nth, **details}
        rule = {"fault": fault.value, "times": times, "kind": kind}
        self._order("/_trial/faults", rule | {name: value for name, value in chosen.items() if value is not None})

    def release(self, how: str, *, key: str | None = None) -> int:
        """Let held requests go: `drop` closes their connections, `answer` answers them. Returns how many."""
        return int(str(self._order("/_trial/release", {"how": how, "key": key})["released"]))

    def change(self, **conditions: float) -> None:
        """Change advance_s, lookup_lag_s, page_size, scattered or work_s."""
        self._order("/_trial/conditions", conditions)

    def heal(self, kind: str) -> None:
        """No order in force hits `operation`, or `lookup`, any more."""
        self.spoil(Fault.NONE, times=None, kind=kind)

    def forget(self, operation: str, *, account: str, key: str) -> None:
        """The object of a natural key is gone, such as a resolved alert: the key is as good as new."""
        self._order("/_trial/forget", {"operation": operation, "account": account, "key": key})

    def announced(self, event: str, **fields: object) -> list[LogLine]:
        """What it has announced so far."""
        return self.program.events(event, **fields)

    def _order(self, path: str, document: object) -> dict[str, object]:
        status, text = self.program.post(path, document)
        if status != 200:
            raise ConditionNotMet(f"{self.program.name} refused {path}: {status} {text}")
        answer: dict[str, object] = json.loads(text)
        return answer
