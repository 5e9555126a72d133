"""Settings: what is refused, what is said about it, and that nothing secret is ever shown."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from outbox_relay.errors import SettingsError
from outbox_relay.settings import Settings, Wakeups, load_settings, split_address, suspicious_variables, variable

ROOT = Path(__file__).resolve().parents[2]
SECRET = "postgresql://relay:hunter2@db.internal/app"


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.startswith("OUTBOX_"):
            monkeypatch.delenv(name)


def test_everything_has_a_default_but_what_only_the_platform_team_knows() -> None:
    settings = load_settings()
    assert settings.wakeups is Wakeups.KAFKA
    assert settings.topic == "outbox.delivery-status.v1"
    assert settings.listen_address == ("127.0.0.1", 9464)
    assert settings.linger_s == pytest.approx(0.003)


@pytest.mark.parametrize(
    ("ask", "name"),
    [
        (Settings.dsn, "OUTBOX_DATABASE_URL"),
        (Settings.capture_dsn, "OUTBOX_CAPTURE_DATABASE_URL"),
        (Settings.needed_environment, "OUTBOX_ENVIRONMENT"),
        (Settings.needed_providers_file, "OUTBOX_PROVIDERS_FILE"),
        (Settings.needed_connect_url, "OUTBOX_CONNECT_URL"),
        (Settings.needed_bootstrap_servers, "OUTBOX_KAFKA_BOOTSTRAP_SERVERS"),
    ],
)
def test_a_missing_setting_is_named_with_what_to_do(ask: Callable[[Settings], object], name: str) -> None:
    with pytest.raises(SettingsError, match=name) as caught:
        ask(load_settings())
    assert caught.value.hint
    assert caught.value.exit_code == 2


def test_without_brokers_the_hint_names_the_mode_that_needs_none() -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings().needed_bootstrap_servers()
    assert "OUTBOX_WAKEUPS=ledger" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OUTBOX_WAKEUPS", "rabbit"),
        ("OUTBOX_LEASE_S", "soon"),
        ("OUTBOX_LEASE_S", "nan"),
        ("OUTBOX_SLOTS", "0"),
        ("OUTBOX_LISTEN", "9464"),
        ("OUTBOX_LISTEN", "host:70000"),
        ("OUTBOX_TOPIC_PREFIX", "a b"),
        ("OUTBOX_SLOT_NAME", "Upper"),
        ("OUTBOX_LOG_LEVEL", "loud"),
        ("OUTBOX_KAFKA_OPTIONS", "{not json"),
        ("OUTBOX_ENVIRONMENT", "Prod!"),
    ],
)
def test_a_wrong_value_is_refused_by_the_variables_name(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match=f"{name}|{name.removeprefix('OUTBOX_').lower()}"):
        load_settings()


def test_all_problems_are_told_at_once_and_no_value_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTBOX_DATABASE_URL", SECRET)
    monkeypatch.setenv("OUTBOX_SLOTS", "hunter2")
    monkeypatch.setenv("OUTBOX_SWEEP_S", "hunter2")
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert "OUTBOX_SLOTS" in str(caught.value)
    assert "OUTBOX_SWEEP_S" in str(caught.value)
    assert "hunter2" not in f"{caught.value} {caught.value.hint} {caught.value.__cause__}"


def test_a_lease_that_a_request_can_outlive_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTBOX_LEASE_S", "10.2")
    monkeypatch.setenv("OUTBOX_PROVIDER_DEADLINE_S", "10")
    with pytest.raises(SettingsError, match="OUTBOX_LEASE_S must exceed OUTBOX_PROVIDER_DEADLINE_S"):
        load_settings()


def test_the_test_profile_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"LEASE_S": "2", "PROVIDER_DEADLINE_S": "1", "SWEEP_S": "0.25"}.items():
        monkeypatch.setenv(f"OUTBOX_{name}", value)
    assert load_settings().lease_s == 2


def test_secrets_are_not_in_the_representation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTBOX_DATABASE_URL", SECRET)
    monkeypatch.setenv("OUTBOX_CAPTURE_DATABASE_URL", SECRET)
    monkeypatch.setenv("OUTBOX_KAFKA_OPTIONS", '{"sasl.password": "hunter2"}')
    settings = load_settings()
    assert settings.dsn() == SECRET
    assert settings.kafka_options == {"sasl.password": "hunter2"}
    assert "hunter2" not in f"{settings!r} {settings}"


def test_any_setting_may_come_from_a_mounted_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "url").write_text(SECRET + "\n")
    (tmp_path / "kafka").write_text('{"sasl.password": "hunter2"}')
    monkeypatch.setenv("OUTBOX_DATABASE_URL_FILE", str(tmp_path / "url"))
    monkeypatch.setenv("OUTBOX_KAFKA_OPTIONS_FILE", str(tmp_path / "kafka"))
    settings = load_settings()
    assert settings.dsn() == SECRET
    assert settings.kafka_options == {"sasl.password": "hunter2"}


def test_a_file_that_cannot_be_read_or_competes_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OUTBOX_DATABASE_URL_FILE", str(tmp_path / "absent"))
    with pytest.raises(SettingsError, match="OUTBOX_DATABASE_URL_FILE names cannot be read"):
        load_settings()
    monkeypatch.setenv("OUTBOX_DATABASE_URL", SECRET)
    with pytest.raises(SettingsError, match="both set") as caught:
        load_settings()
    assert "hunter2" not in str(caught.value)


def test_a_bad_json_file_is_refused_without_its_content(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "kafka").write_text("hunter2")
    monkeypatch.setenv("OUTBOX_KAFKA_OPTIONS_FILE", str(tmp_path / "kafka"))
    with pytest.raises(SettingsError, match="OUTBOX_KAFKA_OPTIONS_FILE") as caught:
        load_settings()
    assert "hunter2" not in str(caught.value)


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTBOX_SLOTS", "")
    assert load_settings().slots == 64


def test_a_misspelt_setting_is_pointed_out_and_a_kubernetes_service_is_not() -> None:
    found = suspicious_variables({"OUTBOX_LEASES_S": "1", "OUTBOX_RELAY_SERVICE_HOST": "10.0.0.1", "OUTBOX_SLOTS": "3"})
    assert found == {"OUTBOX_LEASES_S": "OUTBOX_LEASE_S"}


@pytest.mark.parametrize(
    ("text", "address"),
    [("0.0.0.0:0", ("0.0.0.0", 0)), ("[::1]:9464", ("::1", 9464)), ("localhost:80", ("localhost", 80))],  # noqa: S104
)
def test_addresses_are_split_at_the_port(text: str, address: tuple[str, int]) -> None:
    assert split_address(text) == address


def test_the_operating_page_lists_every_setting_and_no_other() -> None:
    page = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    told = set(re.findall(r"^\| `(OUTBOX_[A-Z_]+)`", page, flags=re.MULTILINE))
    assert told == {variable(field) for field in Settings.model_fields}


def test_history_is_kept_at_least_as_long_as_payloads(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_settings()
    assert (settings.redact_after_days, settings.events_retention_days) == (90, 400)
    monkeypatch.setenv("OUTBOX_EVENTS_RETENTION_DAYS", "89")
    with pytest.raises(SettingsError, match="OUTBOX_REDACT_AFTER_DAYS"):
        load_settings()
    for never in ("OUTBOX_EVENTS_RETENTION_DAYS", "OUTBOX_REDACT_AFTER_DAYS"):
        monkeypatch.setenv(never, "0")
        load_settings()
