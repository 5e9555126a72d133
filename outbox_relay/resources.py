"""Where the files that are not Python live: schemas/ and connectors/, in the wheel or in a checkout.

A wheel carries them inside the package; an editable install does not, so the checkout is looked at second.
"""

from __future__ import annotations

from pathlib import Path

from outbox_relay.errors import InvariantBroken

_PACKAGE = Path(__file__).resolve().parent


def resource(*parts: str) -> Path:
    """Return the path of a shipped file or directory, such as `resource("schemas", "ledger")`."""
    for root in (_PACKAGE / "data", _PACKAGE.parent):
        path = root.joinpath(*parts)
        if path.exists():
            return path
    message = f"{'/'.join(parts)} is missing from this installation"
    raise InvariantBroken(message, hint="reinstall outbox-relay; its data files belong into outbox_relay/data")
