"""A record that was not read to its end says nothing, and pages are read within bounds and under the lease."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from outbox_relay.attempt.lease import Lease, boottime
from outbox_relay.attempt.request import Request
from outbox_relay.attempt.send import Answer, Phase, Sender, Transmission
from outbox_relay.providers.accounts import Account
from outbox_relay.providers.credentials import Credentials
from outbox_relay.providers.registry import load_contracts
from reconciler.conclude import Absent, Found, Inconclusive
from reconciler.lookup import Question, look
from tests.unit.unknown_cases import CLAIM

GITHUB = load_contracts()["github"]
BASE = "https://api.github.com"
ACCOUNT = Account(
    provider="github",
    account="default",
    mode="live",
    base_url=BASE,
    identity="bot",
    contract=GITHUB,
    operations=tuple(GITHUB.operations),
    credentials=Credentials({"token": "not-a-secret"}),
)
ASKED = replace(
    CLAIM,
    provider="github",
    operation="issue_comments.create",
    payload=json.dumps({"owner": "acme", "repo": "shop", "issue_number": 7, "body": "done"}),
    base_url=BASE,
    account_identity="bot",
    contract_version=GITHUB.contract_version,
)
MARK = f"done\n\n<!-- outbox-relay {CLAIM.wire_key} -->"


class Script(Sender):
    """Answers with the next page of a script, if it may still send."""

    def __init__(self, *pages: Transmission) -> None:
        self.pages = list(pages)
        self.urls: list[str] = []

    async def send(
        self, request: Request, *, deadline_s: float, may_send: Callable[[], bool] = lambda: True
    ) -> Transmission:
        assert deadline_s > 0
        if not may_send():
            return Transmission(Phase.NOT_SENT, None, "lease_too_short", 0.0, released=True)
        self.urls.append(request.url)
        return self.pages.pop(0) if self.pages else page([], status=500)


def page(bodies: list[str], *, status: int = 200, following: str | None = None) -> Transmission:
    items = [{"id": 100 + index, "body": body} for index, body in enumerate(bodies)]
    headers = {"link": (f'<{following}>; rel="next"',)} if following else {}
    return Transmission(Phase.COMPLETE, Answer(status, headers, json.dumps(items).encode(), complete=True), None, 0.0)


def question(lease_s: float = 30.0) -> Question:
    return Question(ASKED, ACCOUNT, Lease(boottime(), lease_s), deadline_s=10.0)


LOST = Transmission(Phase.SENT, None, "connection_lost", 0.0)
SECOND = f"{BASE}/repos/acme/shop/issues/7/comments?page=2"


async def test_mark_on_a_later_page_is_found_with_its_id() -> None:
    sender = Script(page(["hello"], following=SECOND), page(["hi", MARK]))
    answer = await look(question(), sender)
    assert isinstance(answer, Found)
    assert (answer.provider_ids, answer.matches) == (("101",), 1)
    assert sender.urls[1] == SECOND


async def test_two_marks_are_two_matches() -> None:
    answer = await look(question(), Script(page([MARK, MARK])))
    assert isinstance(answer, Found)
    assert answer.matches == 2


async def test_absent_only_after_the_last_page() -> None:
    sender = Script(page(["a"], following=SECOND), page(["b"]))
    assert isinstance(await look(question(), sender), Absent)
    assert len(sender.urls) == 2


@pytest.mark.parametrize("broken", [LOST, page([], status=503), page([], status=429)], ids=["lost", "503", "429"])
async def test_record_that_breaks_off_is_inconclusive(broken: Transmission) -> None:
    assert isinstance(await look(question(), Script(page(["a"], following=SECOND), broken)), Inconclusive)


async def test_endless_record_is_inconclusive_within_its_bound() -> None:
    pages = [page(["a"], following=f"{SECOND}&n={number}") for number in range(100)]
    sender = Script(*pages)
    answer = await look(question(), sender)
    assert isinstance(answer, Inconclusive)
    assert answer.evidence.reason == "too_many_pages"
    assert len(sender.urls) == 20


async def test_record_that_leads_back_is_inconclusive() -> None:
    answer = await look(question(), Script(page(["a"], following=SECOND), page(["b"], following=SECOND)))
    assert isinstance(answer, Inconclusive)
    assert answer.evidence.reason == "pages_repeat"


async def test_page_at_another_host_is_not_asked() -> None:
    sender = Script(page(["a"], following="https://evil.example.com/comments?page=2"))
    assert isinstance(await look(question(), sender), Inconclusive)
    assert len(sender.urls) == 1


async def test_nothing_is_asked_when_the_lease_no_longer_covers_the_deadline() -> None:
    sender = Script(page([MARK]))
    assert isinstance(await look(question(lease_s=5.0), sender), Inconclusive)
    assert sender.urls == []


async def test_question_that_cannot_be_asked_is_inconclusive() -> None:
    moved = replace(question(), claim=replace(ASKED, base_url="https://elsewhere.example.com"))
    answer = await look(moved, Script(page([MARK])))
    assert isinstance(answer, Inconclusive)
    assert answer.evidence.reason == "address_changed"
