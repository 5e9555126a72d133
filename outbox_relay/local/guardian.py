"""Ends the stack's processes when the process that started them dies, however it died.

Runs as a process of its own and in its own session: reads `+PID`, `-PID` and `=DIRECTORY` lines from its standard
input, and when that ends (a SIGKILL of the parent closes it too) asks the remaining processes to stop, then kills them
and removes the directory. It never signals a process other than the very one that was named: a reused id has another
start time.
"""

from __future__ import annotations

import contextlib
import shutil
import sys

import psutil

_PATIENCE_S = 8.0


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
