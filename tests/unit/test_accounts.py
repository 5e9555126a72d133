"""The providers file becomes accounts and rows, and no secret ever shows."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from outbox_relay.errors import ContractError
from outbox_relay.providers.accounts import load_accounts
from tests.unit.attempts import CONTRACTS, SIGNING_SECRET

SECRET = "re_very_secret_value"
RESEND = """
accounts:
  - provider: resend
    credentials: {api_key: {env: RESEND_API_KEY}}
    review_owner: platform-oncall
"""


def load(tmp_path: Path, text: str, **environ: str) -> Any:
    path = tmp_path / "providers.yaml"
    path.write_text(text)
    return load_accounts(path, CONTRACTS, {"RESEND_API_KEY": SECRET} | environ)


def test_a_new_account_is_in_hold(tmp_path: Path) -> None:
    (account,) = load(tmp_path, RESEND)
    assert (account.mode, account.account, account.base_url) == ("hold", "default", "https://api.resend.com")


def test_rows_say_what_the_database_needs_and_hold_no_secret(tmp_path: Path) -> None:
    (account,) = load(tmp_path, RESEND)
    (row,) = account.rows()
    assert (row.operation, row.key_max_length, row.key_pattern) == ("emails.send", 256, "[!-~]+")
    assert row.recipient_paths == (("to",), ("to", "0"))
    assert row.contract_version == CONTRACTS["resend"].contract_version
    assert row.account_identity == "https://api.resend.com env:RESEND_API_KEY"
    assert SECRET not in repr(row)


def test_a_secret_never_shows_and_never_leaves_by_pickle(tmp_path: Path) -> None:
    (account,) = load(tmp_path, RESEND)
    assert account.credentials["api_key"] == SECRET
    for shown in (repr(account), str(account), f"{account.credentials}", repr({"copy": account.credentials})):
        assert SECRET not in shown
    with pytest.raises(TypeError, match="stay in this process"):
        pickle.dumps(account.credentials)


def test_a_secret_may_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{SECRET}\n")
    text = RESEND.replace("{env: RESEND_API_KEY}", f"{{file: {tmp_path / 'key'}}}")
    (account,) = load(tmp_path, text)
    assert account.credentials["api_key"] == SECRET


@pytest.mark.parametrize(
    ("found", "replaced", "field", "hint"),
    [
        ("provider: resend", "provider: resent", "accounts.0.provider", "use one of"),
        ("{api_key:", "{token:", "credentials: resend needs api_key", "write credentials"),
        ("{api_key: {env: RESEND_API_KEY}}", "{}", "credentials: resend needs api_key", "write credentials"),
        ("RESEND_API_KEY}}", "RESEND_API_KEY}, more: {env: X}}", "has no credential more", "uses api_key"),
        ("env: RESEND_API_KEY", "env: NOT_SET", "env:NOT_SET is empty or not set", "provide env:NOT_SET"),
        ("{env: RESEND_API_KEY}", "{file: /nowhere/key}", "file:/nowhere/key cannot be read", "mount"),
        ("{env: RESEND_API_KEY}", "{env: A, file: /b}", "one place", "correct"),
        ("env: RESEND_API_KEY", "env: TWO_LINES", "control characters", "bare secret"),
        ("review_owner: platform-oncall", "", "review_owner", "review_owner"),
        ("review_owner:", "mode: lively\n    review_owner:", "mode", "mode"),
        ("review_owner:", "operations: [emails.sent]\n    review_owner:", "no operation emails.sent", "emails.send"),
        ("review_owner:", "base_url: resend.com\n    review_owner:", "base_url", "https://"),
        ("review_owner:", "slots: 0\n    review_owner:", "slots", "slots"),
        ("review_owner:", "colour: red\n    review_owner:", "colour", "colour"),
        ("accounts:", "acounts:", "accounts", "accounts"),
    ],
)
def test_a_mistake_is_refused_with_file_field_and_fix(
    tmp_path: Path, found: Any, replaced: Any, field: Any, hint: Any
) -> None:
    with pytest.raises(ContractError) as refusal:
        load(tmp_path, RESEND.replace(found, replaced), TWO_LINES="a\nb", X="x")
    assert "providers.yaml: " in str(refusal.value)
    assert field in str(refusal.value)
    assert hint in (refusal.value.hint or "")
    assert SECRET not in str(refusal.value)


def test_an_account_is_declared_once(tmp_path: Path) -> None:
    twice = RESEND + RESEND.replace("accounts:\n", "").lstrip("\n")
    with pytest.raises(ContractError, match="declared twice"):
        load(tmp_path, twice)


def test_a_provider_without_an_address_of_its_own_needs_one(tmp_path: Path) -> None:
    text = """
accounts:
  - provider: standard-webhooks
    credentials: {signing_secret: {env: HOOK}}
    review_owner: a
"""
    with pytest.raises(ContractError, match="base_url"):
        load(tmp_path, text, HOOK=SIGNING_SECRET)
    (account,) = load(tmp_path, f"{text}    base_url: https://r.example/hook/\n", HOOK=SIGNING_SECRET)
    assert account.base_url == "https://r.example/hook"


def test_a_secret_that_cannot_sign_is_refused_at_load(tmp_path: Path) -> None:
    text = """
accounts:
  - provider: standard-webhooks
    base_url: https://r.example/hook
    credentials: {signing_secret: {env: HOOK}}
    review_owner: a
"""
    with pytest.raises(ContractError, match="cannot sign") as refusal:
        load(tmp_path, text, HOOK="whsec_")
    assert "whsec_" not in str(refusal.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match="cannot be read") as refusal:
        load_accounts(tmp_path / "none.yaml", CONTRACTS, {})
    assert "OUTBOX_PROVIDERS_FILE" in (refusal.value.hint or "")
