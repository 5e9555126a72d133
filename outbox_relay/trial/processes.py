"""Real programs as real processes: start, watch, freeze, stop and kill them from outside.

Used by tests, the drills and the demo. Signals go to the pid that was started here and to no other. Nothing in the
programs cooperates with a kill: the moment is chosen from what a provider announces or what a log line says.
"""

from __future__ import annotations

import atexit
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self, TypeVar

from outbox_relay.errors import ConditionNotMet
from outbox_relay.local.guard import Guard

POLL_S = 0.02
START_S = 30.0
PATIENCES_MAX = 10
"""However steadily it goes on, a wait for many ends after so many times its patience."""
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH")

T = TypeVar("T")
LogLine = dict[str, object]


@dataclass(frozen=True, slots=True)
class Profile:
    """The durations that decide how long a drill takes, in seconds."""

    name: str
    deadline_s: float
    lease_s: float
    sweep_s: float
    shortens_contracts: bool
    """Whether providers settle within `settle_s`; else as long as their contracts say."""
    settle_s: float = 0.3
    window_s: float | None = None
    """How long a key is good for, provider and contract agreeing; None as the contract says."""

    @property
    def unknown_within_s(self) -> float:
        """How long after a worker's death its actions may take to be shown as unknown: the lease and two sweeps."""
        return self.lease_s + 2 * self.sweep_s


TEST_PROFILE = Profile("test", deadline_s=1, lease_s=2, sweep_s=0.25, shortens_contracts=True)
HOLDING_PROFILE = Profile("holding", deadline_s=2, lease_s=4, sweep_s=0.25, shortens_contracts=True)
"""For drills that hold many answers at once: all must be held before the first one's deadline ends."""
DEFAULT_PROFILE = Profile("default", deadline_s=10, lease_s=30, sweep_s=5, shortens_contracts=False)


def wait_until(condition: Callable[[], T | None], *, timeout_s: float, what: str, poll_s: float = POLL_S) -> T:
    """Ask until the answer is truthy and return it. Raises ConditionNotMet, naming `what`, after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() >= deadline:
            raise ConditionNotMet(f"waited {timeout_s:g} s in vain for: {what}")
        time.sleep(poll_s)


def wait_for_none_left(left: Callable[[], int], *, patience_s: float, what: str, poll_s: float = POLL_S) -> None:
    """Ask how many are left until there are none.

    The patience bounds a standstill, not the amount of work: it begins anew whenever fewer are left than ever before.
    Raises ConditionNotMet when that has not happened for so long, or not all are done after ten times as long.
    """
    began = latest = time.monotonic()
    fewest = math.inf
    while number := left():
        now = time.monotonic()
        if number < fewest:
            fewest, latest = number, now
        if now - latest >= patience_s or now - began >= PATIENCES_MAX * patience_s:
            raise ConditionNotMet(f"waited {now - began:.0f} s in vain for: {what}; {number} are left")
        time.sleep(poll_s)


@cache
def guard() -> Guard:
    """Ends what we started when we are killed ourselves: no relay may go on polling for nobody."""
    # The guard removes a directory at the end; ours holds nothing, because logs are read after a failure.
    started = Guard(Path(tempfile.mkdtemp(prefix="outbox-trial-")))
    atexit.register(started.close)
    return started


class Program:
    """One started process with its output in a file. Use as a context manager: leaving it ends the process."""

    def __init__(self, name: str, argv: Sequence[str], env: Mapping[str, str], folder: Path) -> None:
        self.name = name
        self.log_path = folder / f"{name}.log"
        self._seen_from = self.log_path.stat().st_size if self.log_path.exists() else 0
        with self.log_path.open("ab") as log:
            # A session of its own: Ctrl-C in the terminal is for the supervisor, which then stops its programs.
            self._process = subprocess.Popen(
                list(argv), env=dict(env), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        guard().watch(self.pid)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative when a signal ended it."""
        return self._process.poll()

    def lines(self, having: str = "") -> Iterator[LogLine]:
        """Every JSON line this process has written so far; with `having`, those whose text has it."""
        wanted = having.encode()
        with self.log_path.open("rb") as log:
            log.seek(self._seen_from)
            for raw in log:
                if wanted in raw and raw.startswith(b"{") and raw.endswith(b"}\n"):
                    line = json.loads(raw)
                    if isinstance(line, dict):
                        yield line

    def events(self, event: str, **fields: object) -> list[LogLine]:
        """The lines of one event whose fields have the given values."""
        wanted = {"event": event, **fields}
        return [line for line in self.lines(json.dumps(event)) if wanted.items() <= line.items()]

    def wait_for(self, event: str, *, count: int = 1, timeout_s: float = START_S, **fields: object) -> LogLine:
        """Wait for the `count`th line of an event and return it. Fails at once when the process is gone.

        `timeout_s` bounds a standstill: it begins anew with every such line.
        """

        def missing() -> int:
            # Asked first: what a process wrote before it ended counts.
            ended = self.exit_code
            left = count - len(self.events(event, **fields))
            if left > 0 and ended is not None:
                raise ConditionNotMet(f"{self.name} ended with {ended} before {event}: {self.tail()}")
            return max(0, left)

        wait_for_none_left(missing, patience_s=timeout_s, what=f"{count} x {event} in {self.log_path}")
        return self.events(event, **fields)[count - 1]

    def tail(self, lines: int = 15) -> str:
        """The end of the log, for messages."""
        text = self.log_path.read_text(errors="replace")
        return "\n" + "\n".join(text.splitlines()[-lines:])

    def terminate(self, *, deadline_s: float = 15) -> int:
        """SIGTERM, wait, and return the exit code. A process that ignores it is killed and ConditionNotMet raised."""
        if self.exit_code is None:
            self._process.send_signal(signal.SIGCONT)  # a frozen process could not act on SIGTERM
            self._process.terminate()
        try:
            code = self._process.wait(deadline_s)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise ConditionNotMet(f"{self.name} did not stop within {deadline_s:g} s: {self.tail()}") from error
        guard().forget(self.pid)
        return code

    def kill(self) -> None:
        """SIGKILL: no chance to say or write anything."""
        if self.exit_code is None:
            self._process.kill()
        self._process.wait()
        guard().forget(self.pid)

    def freeze(self) -> None:
        """SIGSTOP, and wait until the kernel says that it stands still."""
        self._process.send_signal(signal.SIGSTOP)
        wait_until(lambda: _process_state(self.pid) == "T", timeout_s=5, what=f"{self.name} to stand still")

    def thaw(self) -> None:
        """SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()


class HttpProgram(Program):
    """A program that listens: relay, reconciler or provider."""

    @property
    def port(self) -> int:
        """The port from its `listening` line; waits for it."""
        line = self.wait_for("listening")
        return int(str(line["port"]))

    @property
    def url(self) -> str:
        """Where it listens, without a slash at the end."""
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str, *, timeout_s: float = 5) -> tuple[int, str]:
        """GET a path of it: (status, text); (0, reason) when it cannot be reached."""
        return _http("GET", self.url + path, None, timeout_s)

    def post(self, path: str, document: object, *, timeout_s: float = 5) -> tuple[int, str]:
        """POST a JSON document to it."""
        return _http("POST", self.url + path, json.dumps(document).encode(), timeout_s)

    def metrics(self) -> dict[str, float]:
        """/metrics as {'name{labels}': value}."""
        status, text = self.get("/metrics")
        if status != 200:
            raise ConditionNotMet(f"{self.name} has no metrics: {status} {text}")
        samples = (line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in samples}

    def wait_ready(self, *, timeout_s: float = START_S) -> HttpProgram:
        """Wait until /readyz says 200."""
        self.wait_for("listening", timeout_s=timeout_s)

        def ready() -> bool:
            if self.exit_code is not None:
                raise ConditionNotMet(f"{self.name} ended with {self.exit_code}: {self.tail()}")
            return self.get("/readyz")[0] == 200

        wait_until(ready, timeout_s=timeout_s, what=f"{self.name} to be ready")
        return self


def start_python(
    name: str, module: str, *, folder: Path, env: Mapping[str, str], arguments: Sequence[str] = ()
) -> HttpProgram:
    """Start `python -m module` with this interpreter and nothing of our environment but what programs need to run."""
    inherited = {key: os.environ[key] for key in INHERITED if key in os.environ}
    argv = (sys.executable, "-u", "-m", module, *arguments)
    return HttpProgram(name, argv, {**inherited, **env}, folder)


def _process_state(pid: int) -> str:
    """R, S, T ... from the kernel; empty when there is no such process or no such file system."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        # Without /proc (macOS) there is nothing to ask: the signal has been delivered all the same.
        return "T" if not Path("/proc/self").exists() else ""


def _http(method: str, url: str, body: bytes | None, timeout_s: float) -> tuple[int, str]:
    request = urllib.request.Request(url, data=body, method=method)  # noqa: S310 - http to ourselves
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:  # noqa: S310
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)
