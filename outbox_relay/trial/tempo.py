"""Provider contracts for trials, with rate limits off and, in the test profile, shorter waits.

The shipped ones, and for the types that no shipped contract has those of `outbox_relay/trial/contracts`. Only durations
and limits change. What a contract says about keys, answers and proof is what is on trial.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from outbox_relay.trial.processes import Profile

PROCESSING_S = 0.2


def write_contracts(providers: Sequence[str], folder: Path, profile: Profile) -> Path:
    """Write the contracts for a trial into `folder` and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    for provider in providers:
        declared = yaml.safe_load(_declared(provider))
        _without_limits(declared)
        if profile.shortens_contracts:
            for operation in declared["operations"].values():
                _hurry(operation, profile.settle_s)
        if profile.window_s is not None:
            for operation in declared["operations"].values():
                _shorten_window(operation.get("idempotency", {}), profile.window_s)
        (folder / f"{provider}.yaml").write_text(yaml.safe_dump(declared, sort_keys=False))
    return folder


def _declared(provider: str) -> bytes:
    file = f"{provider}.yaml"
    shipped = resources.files("outbox_relay.providers") / "contracts" / file
    return (shipped if shipped.is_file() else resources.files("outbox_relay.trial") / "contracts" / file).read_bytes()


def _without_limits(part: dict[str, Any]) -> None:
    limits = part.get("limits", {})
    limits.pop("rate_per_s", None)
    limits.pop("concurrency", None)
    for operation in part.get("operations", {}).values():
        _without_limits(operation)


def _hurry(operation: dict[str, Any], settle_s: float) -> None:
    operation["processing_s"] = PROCESSING_S
    if operation.get("lookup"):
        operation["lookup"]["settle_s"] = settle_s
    for rule in operation.get("throttling", []):
        rule.pop("min_wait_s", None)


def _shorten_window(key: dict[str, Any], window_s: float) -> None:
    if "retention_s" in key:
        key["margin_s"] = 0
        key["retention_s" if key["retention_s"] != "unpublished" else "replay_window_s"] = window_s
