"""Finds the files of connectors/: in the checkout when there is one, else where the wheel keeps them.

Only reads. The same files serve the local stack, the tests, compose and the chart, so they exist once.
"""

from __future__ import annotations

from pathlib import Path

from outbox_relay.errors import InvariantBroken

_PACKAGE = Path(__file__).resolve().parent.parent
_PLACES = (_PACKAGE.parent / "connectors", _PACKAGE / "data" / "connectors")


def connectors_file(name: str) -> Path:
    """The path of a file in connectors/; raises InvariantBroken when the installation is incomplete."""
    for place in _PLACES:
        if (place / name).is_file():
            return place / name
    raise InvariantBroken(f"{name} is missing from this installation", hint="reinstall outbox-relay")
