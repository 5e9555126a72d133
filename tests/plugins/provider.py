"""The simulated provider as a fixture: `start_provider("resend")` is a process with its own book."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from outbox_relay.trial.place import SimulatedProvider

StartProvider = Callable[..., SimulatedProvider]


@pytest.fixture
def start_provider(tmp_path: Path) -> Iterator[StartProvider]:
    """Give the test a factory with the arguments of SimulatedProvider.start; what it started ends with the test."""
    with ExitStack() as stack:

        def start(contract: str, **options: Any) -> SimulatedProvider:
            return stack.enter_context(SimulatedProvider.start(contract, folder=tmp_path, **options))

        yield start
