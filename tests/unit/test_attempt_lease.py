"""The lease is checked with the connection in hand: what is checked earlier may be over when the bytes leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from outbox_relay.attempt.attempt import attempt
from outbox_relay.attempt.classify import Finding
from outbox_relay.attempt.lease import Lease, boottime
from outbox_relay.attempt.request import Request
from outbox_relay.attempt.send import Sender, open_http_client
from outbox_relay.providers.exchange import Transmission
from tests.unit.attempts import CONTRACTS, account_of, claim_of, http, raw_server, read_request


async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Any:
    await read_request(reader)
    writer.write(http("200 OK", b'{"id": "e_1"}'))
    await writer.drain()


class SlowConnection(Sender):
    """Goes on only when the lease no longer covers the deadline, as after a slow handshake or a frozen process."""

    def __init__(self, client: Any, lease: Lease) -> None:
        super().__init__(client)
        self._lease = lease

    async def send(
        self, request: Request, *, deadline_s: float, may_send: Callable[[], bool] = lambda: True
    ) -> Transmission:
        while self._lease.covers(deadline_s):
            await asyncio.sleep(0.01)
        return await super().send(request, deadline_s=deadline_s, may_send=may_send)


async def test_a_lease_that_runs_out_while_the_connection_is_made_lets_nothing_leave() -> None:
    contract, lease = CONTRACTS["resend"], Lease(boottime(), 3)
    async with raw_server(accept) as server, open_http_client() as client:
        account = account_of(contract, base_url=server.url)
        claim = claim_of(account, "emails.send")
        said = await attempt(claim, contract, account, SlowConnection(client, lease), lease, deadline_s=2.5)
        assert server.bytes_received == 0
    assert said.finding is Finding.RELEASED
