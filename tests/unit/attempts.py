"""Values that the tests of the attempt engine share: a claim, an account, a transmission, a server of raw bytes."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from outbox_relay.attempt.lease import Lease, boottime
from outbox_relay.ledger.records import ActionId, Claim, ClaimToken
from outbox_relay.providers.accounts import Account
from outbox_relay.providers.adapters import find_adapter
from outbox_relay.providers.contract import ProviderContract
from outbox_relay.providers.credentials import Credentials
from outbox_relay.providers.exchange import Answer, Phase, Transmission
from outbox_relay.providers.registry import load_contracts

CONTRACTS = load_contracts()
SECRET = "s3cr3t-t0ken-value"
SIGNING_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
FIRST = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)

PAYLOADS: dict[tuple[str, str], dict[str, Any]] = {
    ("resend", "emails.send"): {"from": "a@example.com", "to": "b@example.com", "subject": "hello", "text": "hi"},
    ("github", "issues.create"): {"owner": "acme", "repo": "shop", "title": "broken", "body": "it is"},
    ("github", "issue_comments.create"): {"owner": "acme", "repo": "shop", "issue_number": 7, "body": "done"},
    ("stripe", "payment_intents.create"): {"amount": 1999, "currency": "eur", "metadata": {"order": "42"}},
    ("stripe", "refunds.create"): {"payment_intent": "pi_1", "amount": 5},
    ("slack", "chat.post_message"): {"channel": "C012AB3CD", "text": "deployed"},
    ("pagerduty", "events.enqueue"): {
        "event_action": "trigger",
        "payload": {"summary": "disk full", "source": "db1", "severity": "critical"},
    },
    ("standard-webhooks", "events.send"): {"type": "order.paid", "data": {"id": 1}},
    ("standard-webhooks", "events.send_deduplicated"): {"type": "order.paid", "data": {"id": 1}},
}


def account_of(contract: ProviderContract, **changed: Any) -> Account:
    secrets = {name: SIGNING_SECRET if name == "signing_secret" else SECRET for name in contract.credentials}
    given: dict[str, Any] = {
        "provider": contract.name,
        "account": "default",
        "mode": "live",
        "base_url": contract.base_url or "https://receiver.example/hook",
        "identity": "team_1",
        "contract": contract,
        "operations": tuple(contract.operations),
        "credentials": Credentials(secrets),
        "adapter": find_adapter(contract.adapter) if contract.adapter else None,
    }
    return Account(**given | changed)


def claim_of(account: Account, operation: str, payload: object = None, **changed: Any) -> Claim:
    text = payload if isinstance(payload, str) else json.dumps(payload or PAYLOADS[account.provider, operation])
    claim = Claim(
        action_id=ActionId(UUID(int=1)),
        claim_token=ClaimToken(UUID(int=2)),
        attempt=1,
        provider=account.provider,
        account=account.account,
        operation=operation,
        mode=account.mode,
        idempotency_key="acme:order:42:notify:1",
        wire_key="acme:order:42:notify:1",
        recipient=None,
        payload=text,
        contract_version=account.contract.contract_version,
        base_url=account.base_url,
        account_identity=account.identity,
        ordering_key=None,
        created_at=FIRST,
        first_attempt_at=FIRST,
        due_age_s=0.0,
        traceparent=None,
    )
    return replace(claim, **changed)


def answered(
    status: int, body: bytes | object = b"", *, complete: bool = True, capped: bool = False, **headers: str
) -> Any:
    """A transmission with an answer; header names with underscores for dashes."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-").lower(): (value,) for name, value in headers.items()}
    answer = Answer(status, named, content, complete=complete, capped=capped)
    return Transmission(Phase.COMPLETE if complete else Phase.BODY, answer, None, 0.1)


def lost(phase: Phase, failure: str = "connection_lost", *, released: bool = False) -> Transmission:
    return Transmission(phase, None, failure, 0.1, released=released)


def long_lease() -> Lease:
    return Lease(boottime(), 60.0)


@dataclass
class RawServer:
    """A server that speaks raw bytes and remembers every byte that arrived, by connection."""

    port: int = 0
    received: list[bytearray] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def bytes_received(self) -> int:
        return sum(len(chunk) for chunk in self.received)

    def requests(self) -> int:
        return sum(bytes(chunk).count(b" HTTP/1.1\r\n") for chunk in self.received)


Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
    return head + (await reader.readexactly(length) if length else b"")


@asynccontextmanager
async def raw_server(script: Script, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[RawServer]:
    """Run `script` for every connection; it reads through a reader that records."""
    server = RawServer()

    class Recording(asyncio.StreamReader):
        def __init__(self, **given: Any) -> None:
            super().__init__(**given)
            self.book = bytearray()
            server.received.append(self.book)

        def feed_data(self, data: Any) -> None:
            self.book.extend(data)
            server.arrived.set()
            super().feed_data(data)

    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await script(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    loop = asyncio.get_running_loop()

    def protocol() -> asyncio.BaseProtocol:
        reader = Recording(loop=loop, limit=2**22)
        return asyncio.StreamReaderProtocol(reader, serve, loop=loop)

    listening = await loop.create_server(protocol, "127.0.0.1", 0, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        listening.close()
        await listening.wait_closed()


def http(status: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body
