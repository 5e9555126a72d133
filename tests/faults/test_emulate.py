"""`deploy-42-notify` once more, through a faulty proxy, at providers written by somebody else.

Their own record, asked over their own API, is the oracle.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from outbox_relay.trial.processes import TEST_PROFILE, HttpProgram, wait_until
from outbox_relay.trial.proxy import Mode, ThreadedProxy
from outbox_relay.trial.samples import Sample, sample_of
from outbox_relay.trial.scenario import Scenario
from tests.plugins.processes import SetStage

TOKEN = "test_token_admin"
GITHUB = Sample("github", "issues.create", {"owner": "admin", "repo": "shop", "title": "deploy 42", "body": "-"})
PROVIDERS = ("resend", "github")


@pytest.fixture
def proxies(emulate: dict[str, str]) -> Iterator[dict[str, ThreadedProxy]]:
    with ExitStack() as stack:
        places = {name: urlsplit(emulate[name]) for name in PROVIDERS}
        yield {
            name: stack.enter_context(ThreadedProxy(place.hostname or "localhost", place.port or 80))
            for name, place in places.items()
        }


def effects(emulate: dict[str, str], provider: str, key: str) -> int:
    """How many emails or issues bear this key in their text."""
    path = {"resend": "/emails", "github": "/repos/admin/shop/issues?state=all&per_page=100"}[provider]
    request = urllib.request.Request(emulate[provider] + path, headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        listed = json.load(answer)
    return sum(key in json.dumps(item) for item in (listed["data"] if provider == "resend" else listed))


def lose_and_kill(
    stage: Scenario, relay: HttpProgram, proxies: dict[str, ThreadedProxy], keys: dict[str, str], mode: Mode
) -> None:
    for provider, proxy in proxies.items():
        proxy.script(mode)
        stage.add(provider, [keys[provider]], sample=GITHUB if provider == "github" else sample_of(provider))
    for provider, proxy in proxies.items():
        wait_until(lambda proxy=proxy: proxy.served, timeout_s=10, what=f"{provider} to be reached")  # type: ignore[misc]
    relay.freeze()
    for proxy in proxies.values():
        proxy.drop_all()
    relay.kill()


@pytest.mark.parametrize(("mode", "accepted"), [(Mode.HANG_AFTER_ANSWER, 1), (Mode.HANG, 0)])
def test_a_lost_answer_and_a_killed_worker_leave_one_effect_at_an_independent_provider(
    scenario: SetStage, emulate: dict[str, str], proxies: dict[str, ThreadedProxy], mode: Mode, accepted: int
) -> None:
    keys = {provider: f"deploy-42-notify:{uuid4()}" for provider in PROVIDERS}
    urls = {provider: proxy.url for provider, proxy in proxies.items()}
    stage = scenario(*PROVIDERS, base_urls=urls, secret=TOKEN, profile=TEST_PROFILE)
    lose_and_kill(stage, stage.start_relay("doomed"), proxies, keys, mode)
    assert [effects(emulate, provider, keys[provider]) for provider in PROVIDERS] == [accepted, accepted]
    stage.start_relay("restarted")
    stage.start_reconciler()
    stage.wait_settled(timeout_s=45)
    for provider, key in keys.items():
        (standing,) = stage.standings(key)
        assert standing.delivery_state in ("delivery_confirmed", "reconciled_confirmed"), standing
        assert stage.reasons_for_unknown(key) == {key: {"claim_expired"}}
        assert effects(emulate, provider, key) == 1
    assert not stage.count("a.duplicate_suspected")
