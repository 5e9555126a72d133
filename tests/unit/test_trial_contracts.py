"""The simulated provider plays the types that no shipped contract has, and windows that start at completion."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from outbox_relay.providers.registry import load_contracts
from outbox_relay.trial.faults import Fault
from outbox_relay.trial.place import SimulatedProvider
from outbox_relay.trial.processes import TEST_PROFILE, wait_until
from outbox_relay.trial.samples import sample_of
from outbox_relay.trial.tempo import write_contracts
from tests.plugins.provider import StartProvider
from tests.unit.test_trial_provider import Seen, ask

DAY_S = 86_400.0


@pytest.fixture
def contracts_dir(tmp_path: Path) -> Path:
    return write_contracts(("trial-a-plus", "trial-b", "trial-completion"), tmp_path / "contracts", TEST_PROFILE)


def mail(provider: SimulatedProvider, key: str, *, timeout: float = 10) -> Seen:
    body = json.dumps(sample_of("trial-completion").payload).encode()
    return ask(provider, "POST", "/messages", body, timeout, Idempotency_Key=key)


def order(provider: SimulatedProvider, key: str, text: str) -> Seen:
    body = json.dumps({"location": "L42", "text": text, "idempotency_key": key}).encode()
    return ask(provider, "POST", "/v2/orders", body)


def transfer(provider: SimulatedProvider, key: str) -> Seen:
    body = json.dumps(sample_of("trial-a-plus").payload).encode()
    return ask(provider, "POST", "/transfers", body, Idempotency_Key=key)


def test_no_program_finds_a_contract_of_the_trials_by_itself() -> None:
    own = {path.name.removesuffix(".yaml") for path in (resources.files("outbox_relay.trial") / "contracts").iterdir()}
    assert own
    assert not own & set(load_contracts())


def test_a_window_from_completion_is_as_much_longer_as_the_work_took(
    start_provider: StartProvider, contracts_dir: Path
) -> None:
    provider = start_provider("trial-completion", contracts_dir=contracts_dir)
    provider.spoil(Fault.WORK_UNTIL_RELEASED)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(mail, provider, "k1", timeout=30)
        provider.program.wait_for("working", key="k1")
        assert mail(provider, "k1")[2]["name"] == "still_sending"
        provider.change(advance_s=DAY_S / 2)
        provider.release("answer")
        assert first.result()[0] == 200
    provider.change(advance_s=DAY_S - 60)
    assert mail(provider, "k1")[1]["idempotent-replayed"] == "true"
    assert provider.book.effects_per_key() == {"k1": 1}
    provider.change(advance_s=61)
    mail(provider, "k1")
    assert provider.book.effects_per_key() == {"k1": 2}


def test_work_goes_on_for_a_caller_that_has_given_up(start_provider: StartProvider, contracts_dir: Path) -> None:
    provider = start_provider("trial-completion", contracts_dir=contracts_dir)
    provider.spoil(Fault.WORK_UNTIL_RELEASED)
    with pytest.raises(OSError):
        mail(provider, "k1", timeout=1)
    provider.program.wait_for("working", key="k1")
    assert provider.book.effects_per_key() == {}
    provider.release("answer")
    wait_until(lambda: provider.book.effects_per_key() == {"k1": 1}, timeout_s=30, what="the effect")


def test_a_server_error_that_was_stored_after_the_effect_is_given_back(
    start_provider: StartProvider, contracts_dir: Path
) -> None:
    provider = start_provider("trial-completion", contracts_dir=contracts_dir)
    provider.spoil(Fault.SERVER_ERROR_CACHED_AFTER_EFFECT)
    assert [mail(provider, "k1")[0] for _ in range(2)] == [500, 500]
    assert [line.meaning for line in provider.book.answers("k1")] == ["server_error", "replayed"]
    assert provider.book.effects_per_key() == {"k1": 1}


def test_one_status_has_two_meanings_and_the_key_stands_in_the_body(
    start_provider: StartProvider, contracts_dir: Path
) -> None:
    provider = start_provider("trial-b", contracts_dir=contracts_dir)
    provider.spoil(Fault.IN_PROGRESS, nth=2, key="k1")
    assert order(provider, "k1", "one")[0] == 200
    at_work, other_body = order(provider, "k1", "one"), order(provider, "k1", "two")
    assert (at_work[0], at_work[2]["error"]["code"]) == (409, "REQUEST_IN_PROGRESS")
    assert (other_body[0], other_body[2]["error"]["code"]) == (409, "IDEMPOTENCY_KEY_REUSED")
    assert provider.book.effects_per_key() == {"k1": 1}


def test_a_key_can_be_queried(start_provider: StartProvider, contracts_dir: Path) -> None:
    provider = start_provider("trial-a-plus", contracts_dir=contracts_dir)
    for key in ("k1", "k2"):
        transfer(provider, key)
    found = ask(provider, "GET", "/transfers?idempotency_key=k2&limit=50")[2]["data"]
    assert [item["idempotency_key"] for item in found] == ["k2"]
    assert ask(provider, "GET", "/transfers?idempotency_key=k3&limit=50")[2]["data"] == []


def test_a_scattered_record_shows_everything_once_in_no_order(
    start_provider: StartProvider, contracts_dir: Path
) -> None:
    provider = start_provider("trial-a-plus", contracts_dir=contracts_dir)
    made = [transfer(provider, f"k{number}")[2]["id"] for number in range(12)]
    provider.change(page_size=5, scattered=True)
    shown: list[Any] = []
    cursor: str | None = ""
    for _ in range(3):
        page = ask(provider, "GET", f"/transfers?limit=50&cursor={cursor}")[2]
        shown += [item["id"] for item in page["data"]]
        cursor = page.get("next_cursor")
    assert cursor is None
    assert shown != made
    assert sorted(shown) == sorted(made)
