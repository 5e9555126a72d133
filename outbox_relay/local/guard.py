"""Ends the stack's processes when the process that started them dies, however it died.

Runs as a process of its own and in its own session: reads `+PID`, `-PID` and `=DIRECTORY` lines from its standard
input, and when that ends (a SIGKILL of the parent closes it too) asks the remaining processes to stop, then kills them
and removes the directory. It never signals a process other than the very one that was named: a reused id has another
start time.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import psutil

_PATIENCE_S = 8.0


class Guard:
    """The parent's side: names processes to the guard, which is started with the first of them."""

    def __init__(self, directory: Path) -> None:
        """`directory` holds the processes' data and is removed with them; it must be ours alone."""
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def watch(self, pid: int) -> None:
        """From now on this process dies with us."""
        self._tell(f"+{pid}\n")

    def forget(self, pid: int) -> None:
        """This process has ended or was let go."""
        self._tell(f"-{pid}\n")

    def close(self) -> None:
        """Ends the guard; whatever is still watched is ended with it."""
        with self._lock:
            if self._process is None or self._process.stdin is None:
                return
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            self._process.wait(timeout=_PATIENCE_S + 10)
            self._process = None

    def _tell(self, line: str) -> None:
        with self._lock:
            if self._process is None:
                # By path, so that it runs wherever this module was found; -P keeps its siblings out of its imports.
                # Unbuffered: a line that is still in a buffer when we are killed protects nobody.
                line = f"={self._directory}\n{line}"
                self._process = subprocess.Popen(
                    [sys.executable, "-P", __file__],
                    stdin=subprocess.PIPE,
                    start_new_session=True,
                    bufsize=0,
                )
            if self._process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    self._process.stdin.write(line.encode())


def main() -> None:
    """Follow the instructions until the parent is gone, then end what is left."""
    watched: dict[int, psutil.Process] = {}
    directory = ""
    for line in sys.stdin:
        if line[0] == "=":
            directory = line[1:].rstrip("\n")
            continue
        pid = int(line[1:])
        if line[0] == "-":
            watched.pop(pid, None)
            continue
        with contextlib.suppress(psutil.NoSuchProcess):
            watched[pid] = psutil.Process(pid)
    end(list(watched.values()))
    if directory:
        shutil.rmtree(directory, ignore_errors=True)


def end(processes: list[psutil.Process]) -> None:
    """Ask, wait, then kill, children included."""
    family = list(processes)
    for process in processes:
        with contextlib.suppress(psutil.Error):
            family += process.children(recursive=True)
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.resume()
            process.terminate()
    _, alive = psutil.wait_procs(family, timeout=_PATIENCE_S)
    for process in alive:
        with contextlib.suppress(psutil.Error):
            process.kill()


if __name__ == "__main__":
    main()
