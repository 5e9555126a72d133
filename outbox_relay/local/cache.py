"""Where downloads and other things that may be deleted at any time are kept between runs.

OUTBOX_LOCAL_CACHE when set, else the platform's cache directory for users.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CACHE_VARIABLE = "OUTBOX_LOCAL_CACHE"


def cache_directory() -> Path:
    """The cache directory, made when it does not exist."""
    given = os.environ.get(CACHE_VARIABLE)
    if given:
        path = Path(given).absolute()
    else:
        path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "outbox-relay"
    path.mkdir(parents=True, exist_ok=True)
    return path


@contextmanager
def locked(name: str) -> Iterator[Path]:
    """One process at a time in this part of the cache; yields its directory."""
    directory = cache_directory() / name
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield directory
