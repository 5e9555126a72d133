"""Names the processes that must not outlive us to a guardian, a process of its own that ends them when we die.

Nothing here needs more than the standard library, so that everything which starts processes can be imported without
the extra `local`; the guardian itself needs psutil.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from pathlib import Path

_GUARDIAN = Path(__file__).with_name("guardian.py")
_END_S = 20.0
"""The guardian asks, waits eight seconds and kills."""


class Guard:
    """The parent's side: the guardian is started with the first process that it must watch."""

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
        """Ends the guardian; whatever is still watched is ended with it."""
        with self._lock:
            if self._process is None or self._process.stdin is None:
                return
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            self._process.wait(timeout=_END_S)
            self._process = None

    def _tell(self, line: str) -> None:
        with self._lock:
            if self._process is None:
                # By path, so that it runs wherever this module was found; -P keeps its siblings out of its imports.
                # Unbuffered: a line that is still in a buffer when we are killed protects nobody.
                line = f"={self._directory}\n{line}"
                self._process = subprocess.Popen(
                    [sys.executable, "-P", str(_GUARDIAN)],
                    stdin=subprocess.PIPE,
                    start_new_session=True,
                    bufsize=0,
                )
            if self._process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    self._process.stdin.write(line.encode())
