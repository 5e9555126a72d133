"""Runs drills side by side, each on a stage of its own, says what is under way, and writes every result down at once.

Most of a drill is waiting, so that a few at a time cost little more than the longest of them. Ctrl-C ends all of them:
what they have started dies with this process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field

SAY_EVERY_S = 60.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Task:
    """Something to be done in one of the lanes."""

    name: str
    run: Callable[[Say], None]
    """It is told how to say something: one call, one block of lines that nobody interrupts."""


@dataclass(slots=True)
class Lanes:
    """A number of lanes, and what is under way in them."""

    count: int
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _under_way: dict[str, float] = field(default_factory=dict)
    _began: float = field(default_factory=time.monotonic)

    def run(self, tasks: Sequence[Task]) -> None:
        """Run all of them, the first ones first. The first exception ends it: no more tasks begin."""
        done = threading.Event()
        teller = threading.Thread(target=self._tell, args=(done,), name="teller", daemon=True)
        teller.start()
        pool = ThreadPoolExecutor(self.count, thread_name_prefix="lane")
        try:
            for future in as_completed([pool.submit(self._one, task) for task in tasks]):
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        else:
            pool.shutdown()
        finally:
            done.set()

    def say(self, text: str) -> None:
        """Print with the time since the beginning."""
        with self._lock:
            elapsed_s = round(time.monotonic() - self._began)
            print(f"[{elapsed_s // 60:3d}:{elapsed_s % 60:02d}] {text}", flush=True)

    def _one(self, task: Task) -> None:
        self._under_way[task.name] = time.monotonic()
        try:
            task.run(self.say)
        finally:
            del self._under_way[task.name]

    def _tell(self, done: threading.Event) -> None:
        while not done.wait(SAY_EVERY_S):
            now = time.monotonic()
            under_way = [f"{name} ({round(now - since)} s)" for name, since in list(self._under_way.items())]
            self.say(f"... under way: {', '.join(under_way) or 'nothing'}")
