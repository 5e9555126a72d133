"""What the Python peers share: one aiohttp session, one POST, and a results table for those that keep no results."""

from __future__ import annotations

import aiohttp

RESULTS = (
    "create table results (key text primary key, provider_id text not null,"
    " stored_at timestamptz not null default clock_timestamp())"
)
STORE = "insert into results (key, provider_id) values ($1, $2)"


class Poster:
    """Sends messages with one kept session, opened in the running loop on first use."""

    def __init__(self, provider_url: str) -> None:
        self._url = f"{provider_url}/messages"
        self._session: aiohttp.ClientSession | None = None

    async def post(self, key: str, body: bytes) -> str:
        """Send once and return the provider's id."""
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0)
            self._session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())
        headers = {
            "Content-Type": "application/json",
            "Authorization": "Bearer bench-api-key",
            "Idempotency-Key": key,
        }
        async with self._session.post(self._url, data=body, headers=headers) as answer:
            answer.raise_for_status()
            return str((await answer.json())["id"])
