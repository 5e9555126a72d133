"""Sends one rendered request once. Knows nothing of contracts; decides nothing."""

from __future__ import annotations

from collections.abc import Callable

from outbox_relay.attempt.request import Request
from outbox_relay.providers.exchange import Answer, Phase, Transmission
from outbox_relay.providers.http import HttpClient, open_http_client

__all__ = ["Answer", "Phase", "Sender", "Transmission", "open_http_client"]


class Sender:
    """One request, one deadline, no second try."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client

    async def send(
        self, request: Request, *, deadline_s: float, may_send: Callable[[], bool] = lambda: True
    ) -> Transmission:
        """Send within `deadline_s`, connection included. `may_send` is asked right before the first byte."""
        return await self._client.exchange(
            request.method,
            request.url,
            request.headers,
            request.body if request.has_body else None,
            may_send=may_send,
            max_answer_bytes=request.max_answer_bytes,
            fresh_connection=request.fresh_connection,
            deadline_s=deadline_s,
        )
