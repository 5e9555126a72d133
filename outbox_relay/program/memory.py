"""How a program lets Python look for garbage: rarely, and never through what it loaded at its start.

Nearly all that an attempt makes goes away by counting references. What is left are cycles, mostly of errors; they are
still found, so that memory stays flat. Decides nothing about actions.
"""

from __future__ import annotations

import gc
from typing import Final

YOUNG_MAX: Final = 10_000
"""A first look at new objects when there are so many more than before. A wave of claims makes a few thousand, which are
gone soon; at Python's own 700 each wave was looked through several times, for nothing."""


def settle() -> None:
    """Call once when everything is loaded and open: what exists now stays to the end and is not looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_MAX, *gc.get_threshold()[1:])
