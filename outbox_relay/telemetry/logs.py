"""Log lines: JSON to stdout, one event name per line, the same fields for every attempt.

Never a payload, a recipient, a key, a URL or a secret: fields with such names are withheld whoever passes them, and of
errors that are not our own only type and place are printed, because their messages may quote data.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
import traceback
from typing import Final, Literal, TextIO
from uuid import UUID

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from outbox_relay.errors import OutboxError
from outbox_relay.values import value

Logger = FilteringBoundLogger

PRIVATE_FIELDS: Final = frozenset(
    {
        "authorization",
        "body",
        "credentials",
        "database_url",
        "dsn",
        "excerpt",
        "headers",
        "idempotency_key",
        "key",
        "password",
        "payload",
        "recipient",
        "secret",
        "tenant",
        "token",
        "url",
        "wire_key",
    }
)
WITHHELD: Final = "[withheld]"
SPEAKING_ERRORS: Final = (OutboxError, OSError, AttributeError, ImportError, NameError, TypeError, RuntimeError)
"""Errors whose message is ours or the interpreter's; others may quote a payload or a connection string."""
FRAMES_MAX: Final = 12


@value
class AttemptLine:
    """The fields of the one line that every attempt leaves."""

    action_id: UUID
    attempt: int
    provider: str
    account: str
    operation: str
    finding: str
    reason: str
    status: int | None
    duration_ms: float
    phase: str | None = None
    trace_id: str | None = None


def log_attempt(log: Logger, line: AttemptLine) -> None:
    """Write an attempt's line; the event is `attempt` for relay and reconciler alike."""
    if _DIRECT.write(log, line):
        return
    log.info("attempt", **_fields(line))


def _fields(line: AttemptLine) -> dict[str, object]:
    return {
        "action_id": str(line.action_id),
        "attempt": line.attempt,
        "provider": line.provider,
        "account": line.account,
        "operation": line.operation,
        "finding": line.finding,
        "reason": line.reason,
        "status": line.status,
        "phase": line.phase,
        "duration_ms": round(line.duration_ms, 1),
        **({"trace_id": line.trace_id} if line.trace_id else {}),
    }


_STAMP: Final = structlog.processors.TimeStamper(fmt="iso", utc=True, key="time")
_KNOWN_MAX: Final = 4096


class _DirectLines:
    """Attempts' lines as the chain of processors would write them, for a third of its cost.

    Every attempt leaves a line, and most of it is the same each time: only the id, the number, the duration and the
    time are put in anew. Anything but plain JSON on level info goes the long way. The lines of one turn of the event
    loop leave together, at the start of the next; whatever else is written to the same file keeps its place.
    """

    def __init__(self) -> None:
        self._processors: list[Processor] = []
        self._file: TextIO | None = None
        self._everywhere: dict[str, str] = {}
        self._known: dict[tuple[object, ...], str] = {}
        self._kept: list[Logger] = []
        self._flushed_by: asyncio.AbstractEventLoop | None = None
        self._second = 0
        self._second_text = ""

    def configure(self, processors: list[Processor], file: TextIO | None, everywhere: dict[str, str]) -> None:
        """From now on lines look like this; without a file all go the long way."""
        self._processors = processors
        self._file = file
        self._everywhere = everywhere
        self._known, self._kept = {}, []
        self._flushed_by = None

    def write(self, log: Logger, line: AttemptLine) -> bool:
        """Write the line; False when it has to go the long way."""
        if self._file is None or structlog.get_config()["processors"] is not self._processors:
            return False
        if self._processors[-1] is not _as_json or not (line.trace_id or "0").isalnum():
            return False
        same = (line.provider, line.account, line.operation, line.finding, line.reason, line.status, line.phase)
        start = self._known.get((id(log), *same))
        if start is None:
            start = self._start(log, line)
            if len(self._known) < _KNOWN_MAX:
                self._kept.append(log)
                self._known[id(log), *same] = start
        trace = f', "trace_id": "{line.trace_id}"' if line.trace_id else ""
        self._file.write(
            f'{start}, "action_id": "{line.action_id}", "attempt": {line.attempt:d},'
            f' "duration_ms": {round(line.duration_ms, 1)!r}{trace}, "time": "{self._now()}"}}\n'
        )
        self._flush_soon()
        return True

    def _now(self) -> str:
        """The time as the chain has it; what is the same for a second is put together once."""
        # A line's time decides nothing: the machine's clock will do.
        second, micros = divmod(time.clock_gettime_ns(time.CLOCK_REALTIME) // 1000, 1_000_000)
        if second != self._second:
            self._second, self._second_text = second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._second_text}.{micros:06d}Z"

    def _flush_soon(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._flush()
            return
        # A loop that ended with a flush outstanding must not keep the next one from being flushed.
        if self._flushed_by is not loop:
            self._flushed_by = loop
            loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushed_by = None
        if self._file is not None:
            self._file.flush()

    def _start(self, log: Logger, line: AttemptLine) -> str:
        fields = _fields(line)
        for name in ("action_id", "attempt", "duration_ms", "trace_id"):
            fields.pop(name, None)
        bound = structlog.get_context(log.bind())
        return _encode({**self._everywhere, **bound, **fields, "event": "attempt", "level": "info"})[:-1]


_DIRECT: Final = _DirectLines()


def log_failure(log: Logger, event: str, error: BaseException) -> None:
    """Write an error with its hint and, unless it is one of ours, where it came from."""
    hint = getattr(error, "hint", None)
    log.error(event, error=describe_error(error), **({"hint": hint} if hint else {}), **_frames_field(error))


def _frames_field(error: BaseException) -> dict[str, list[str]]:
    if isinstance(error, OutboxError):
        return {}
    return {"frames": frames(error)}


def describe_error(error: BaseException) -> str:
    """Type and, where it cannot hold foreign data, the message."""
    if isinstance(error, BaseExceptionGroup):
        return f"{type(error).__name__}: " + ", ".join(describe_error(inner) for inner in error.exceptions)
    if isinstance(error, SPEAKING_ERRORS):
        return f"{type(error).__name__}: {error}"
    return type(error).__name__


def frames(error: BaseException) -> list[str]:
    """The innermost frames as file:line function, newest last."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    stack = traceback.extract_tb(error.__traceback__)[-FRAMES_MAX:]
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in stack]


def withhold_private(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replace the value of every field that must not be logged."""
    for name in PRIVATE_FIELDS.intersection(event):
        event[name] = WITHHELD
    return event


def render_error(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Turn `exc_info` into type, safe message and frames."""
    info = event.pop("exc_info", None)
    error = sys.exc_info()[1] if info is True else info[1] if isinstance(info, tuple) else info
    if isinstance(error, BaseException):
        event["error"] = describe_error(error)
        event["frames"] = frames(error)
    return event


# One encoder for all lines: json.dumps makes one anew for each as soon as it is given a default.
_encode: Final = json.JSONEncoder(default=repr, check_circular=False).encode


def _as_json(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    return _encode(event)


def configure_logging(
    *, program: str, instance: str, log_format: Literal["json", "console"] | None = None, level: str = "info"
) -> None:
    """Send our lines and those of libraries (from warning on) to stdout in one format."""
    number = logging.getLevelNamesMapping()[level.upper()]
    console = log_format == "console" or (log_format is None and sys.stdout.isatty())
    renderer: Processor = structlog.dev.ConsoleRenderer() if console else _as_json
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        _STAMP,
        withhold_private,
        render_error,
    ]
    processors = [*shared, renderer]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stdout),
        cache_logger_on_first_use=True,
    )
    everywhere = {"program": program, "instance": instance}
    structlog.contextvars.bind_contextvars(**everywhere)
    _DIRECT.configure(processors, None if console or number > logging.INFO else sys.stdout, everywhere)
    _bridge_libraries(shared, renderer, max(number, logging.WARNING))


def _bridge_libraries(shared: list[Processor], renderer: Processor, level: int) -> None:
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, structlog.stdlib.ExtraAdder(), *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)


def get_logger(name: str) -> Logger:
    """A logger whose lines carry this name as `component`."""
    log: Logger = structlog.get_logger(component=name)
    return log
