"""An adapter of another package is found by its entry point; one that is missing is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from outbox_relay.errors import ContractError
from outbox_relay.providers.adapters import GROUP, Signable, find_adapter
from outbox_relay.providers.credentials import Credentials

SOURCE = """
class Tagged:
    def sign(self, signable):
        return {"X-Tag": f"{signable.key}@{signable.at_unix_s}"}
"""


def test_an_adapter_of_another_package_is_found_by_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tagging_adapter.py").write_text(SOURCE)
    metadata = tmp_path / "tagging_adapter-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: tagging-adapter\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(f"[{GROUP}]\ntagged = tagging_adapter:Tagged\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    signable = Signable(
        method="POST", url="https://x/", headers={}, body=b"{}", key="k", credentials=Credentials({}), at_unix_s=7
    )
    assert find_adapter("tagged").sign(signable) == {"X-Tag": "k@7"}


def test_a_missing_adapter_is_named_with_the_group_to_register_it_in() -> None:
    with pytest.raises(ContractError, match="no adapter named nobody") as refusal:
        find_adapter("nobody")
    assert GROUP in (refusal.value.hint or "")
