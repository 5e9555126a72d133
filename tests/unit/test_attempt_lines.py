"""The lines of attempts leave together, soon, and among other lines in the order in which they were written."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import sys
from collections.abc import Iterator
from uuid import UUID

import pytest
import structlog

from outbox_relay.telemetry import AttemptLine, configure_logging, get_logger, log_attempt

LINE = AttemptLine(
    action_id=UUID(int=1),
    attempt=2,
    provider="resend",
    account="default",
    operation="emails.send",
    finding="accepted",
    reason="accepted",
    status=200,
    duration_ms=12.34,
)


class Terminal(io.StringIO):
    """A stream that shows what was flushed, as a pipe does."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[str] = []

    def flush(self) -> None:
        self.shown.append(self.getvalue())


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """Capture what is written and flushed, and put logging back afterwards."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stdout", stream)
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    configure_logging(program="relay", instance="relay-1", log_format="json")
    yield stream
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def events(text: str) -> list[str]:
    return [json.loads(line)["event"] for line in text.splitlines()]


async def test_the_attempts_lines_of_one_turn_leave_together_and_at_once(terminal: Terminal) -> None:
    for _ in range(3):
        log_attempt(get_logger("test"), LINE)
    assert terminal.shown == []
    await asyncio.sleep(0)
    (shown,) = terminal.shown
    assert events(shown) == ["attempt"] * 3


async def test_other_lines_keep_their_place_among_the_attempts(terminal: Terminal) -> None:
    log_attempt(get_logger("test"), LINE)
    get_logger("test").info("between")
    log_attempt(get_logger("test"), LINE)
    await asyncio.sleep(0)
    assert events(terminal.getvalue()) == ["attempt", "between", "attempt"]
    assert terminal.shown[-1] == terminal.getvalue()


def test_a_loop_that_ended_before_it_flushed_keeps_no_later_line_back(terminal: Terminal) -> None:
    async def told() -> None:
        log_attempt(get_logger("test"), LINE)

    for _ in range(2):
        ended = asyncio.new_event_loop()
        ended.call_soon(log_attempt, get_logger("test"), LINE)
        ended.call_soon(ended.stop)
        ended.run_forever()
        ended.close()
    asyncio.run(told())
    log_attempt(get_logger("test"), LINE)
    assert len(terminal.shown[-1].splitlines()) == 4
