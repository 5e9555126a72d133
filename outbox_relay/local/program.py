"""One server process of the local stack: started in its own process group, logged to a file, ended by its id.

Ctrl-C in the terminal does not reach it (own session), so the stack decides in which order things stop. It never
signals anything but the process it started.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from outbox_relay.errors import DependencyDown
from outbox_relay.local.guard import Guard

_POLL_S = 0.05
_TAIL_BYTES = 8_192


class Program:
    """A server process that can be started again after it was stopped or killed."""

    def __init__(self, name: str, log: Path, guard: Guard) -> None:
        self.name = name
        self.log = log
        self._guard = guard
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id; raises DependencyDown when it was never started."""
        if self._process is None:
            raise DependencyDown(f"{self.name} is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        """True while the process exists."""
        return self._process is not None and self._process.poll() is None

    def start(
        self, argv: Sequence[str], *, environ: Mapping[str, str], user: str | None = None, cwd: Path | None = None
    ) -> None:
        """Start it, with its output appended to the log; `user` when we are root and it must not be."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environ),
                cwd=cwd,
                user=user,
                group=None if user is None else group_of(user),
                extra_groups=None if user is None else [],
                start_new_session=True,
            )
        self._guard.watch(self._process.pid)

    def wait_until(self, ready: Callable[[], bool], *, timeout_s: float) -> None:
        """Wait for `ready`; raises DependencyDown with the end of the log when the process dies or time runs out."""
        deadline = time.monotonic() + timeout_s
        while not ready():
            if not self.running:
                raise DependencyDown(f"{self.name} ended while starting", hint=self._log_hint())
            if time.monotonic() > deadline:
                raise DependencyDown(f"{self.name} was not ready within {timeout_s:.0f} s", hint=self._log_hint())
            time.sleep(_POLL_S)

    def stop(self, *, how: signal.Signals = signal.SIGTERM, patience_s: float = 20.0) -> None:
        """Ask it to end and wait; kill it when it does not."""
        if self._process is None:
            return
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGCONT)
                self._process.send_signal(how)
        try:
            self._process.wait(timeout=patience_s)
        except subprocess.TimeoutExpired:
            self.kill()
        self._guard.forget(self._process.pid)

    def kill(self) -> None:
        """SIGKILL the process and its children, as a crash would."""
        if self._process is None:
            return
        children: list[psutil.Process] = []
        with contextlib.suppress(psutil.Error):
            children = psutil.Process(self._process.pid).children(recursive=True)
        self._process.kill()
        for child in children:
            with contextlib.suppress(psutil.Error):
                child.kill()
        self._process.wait()
        psutil.wait_procs(children, timeout=10)
        self._guard.forget(self._process.pid)

    def pause(self) -> None:
        """SIGSTOP: it lives and answers nothing."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT after `pause`."""
        os.kill(self.pid, signal.SIGCONT)

    def _log_hint(self) -> str:
        with contextlib.suppress(OSError), self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - _TAIL_BYTES))
            tail = file.read().decode(errors="replace").splitlines()[-15:]
            return f"see {self.log}; it ends with:\n" + "\n".join(tail)
        return f"see {self.log}"


def group_of(user: str) -> int:
    """The primary group id of a user."""
    import pwd  # not on every platform that can import this module

    return pwd.getpwnam(user).pw_gid
