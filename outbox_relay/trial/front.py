"""The simulated provider's face to the network: whole answers, and every way of not giving one.

Closing, holding and spoiling connections happens here and nowhere else.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from aiohttp import web

from outbox_relay.trial.dialect import Call
from outbox_relay.trial.faults import HELD_FAULTS, Fault, FaultRule
from outbox_relay.trial.memory import Answer
from outbox_relay.trial.workshop import Meaning, Said, Workshop

BODY_BYTES_MAX = 16 * 1024 * 1024
GARBAGE = "<html><body>upstream said \x00 \ufffd and then nothing"


class Announce(Protocol):
    """Tells the supervisor what has happened."""

    def __call__(self, event: str, **fields: object) -> None:
        """Write one line."""


class Gate:
    """Holds requests until somebody outside lets them go."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[str | None, asyncio.Future[str]]] = {}
        self._next = 0

    async def hold(self, ref: str | None) -> str:
        """Wait; return `drop` or `answer`."""
        self._next += 1
        number, future = self._next, asyncio.get_running_loop().create_future()
        self._held[number] = (ref, future)
        try:
            return str(await future)
        finally:
            del self._held[number]

    def release(self, how: str, ref: str | None) -> int:
        """Let go of the held requests of one action, or of all. Returns how many."""
        chosen = [future for held, future in self._held.values() if ref in (None, held) and not future.done()]
        for future in chosen:
            future.set_result(how)
        return len(chosen)

    def __len__(self) -> int:
        return len(self._held)


class Front:
    """Handles every request that is not for the admin."""

    def __init__(self, workshop: Workshop, announce: Announce) -> None:
        self.gate = Gate()
        self._workshop = workshop
        self._announce = announce
        self._working: set[asyncio.Task[Said]] = set()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """One request of a caller."""
        headers = {name.lower(): value for name, value in request.headers.items()}
        try:
            body = await request.read()
        except (asyncio.CancelledError, web.RequestPayloadError, ConnectionError):
            self._book_part(request, headers)
            raise
        call = self._workshop.dialect.read(request.method, request.raw_path, headers, body)
        if call is None:
            return web.json_response({"message": "not found"}, status=404)
        rule = self._workshop.faults.choose(kind=call.kind, ref=call.ref)
        fault = rule.fault if rule is not None else Fault.NONE
        if fault in (Fault.DROP_BEFORE_RECEIPT, Fault.HOLD_BEFORE_RECEIPT):
            return await self._never_receive(request, call, fault)
        number = self._workshop.write_request(call, fault)
        said = await self._answer(request, call, number, rule)
        if said is None:
            self._workshop.book.answer(request=number, status=None, meaning=Meaning.SILENCE)
            return _drop(request)
        return await self._deliver(request, number, said, rule)

    async def _never_receive(self, request: web.Request, call: Call, fault: Fault) -> web.StreamResponse:
        """Close the connection, at once or when told to, as if nothing had come through it."""
        if fault is Fault.HOLD_BEFORE_RECEIPT:
            self._announce("held", key=call.ref, fault=fault.value)
            await self.gate.hold(call.ref)
        self._announce("dropped", key=call.ref, fault=fault.value)
        return _drop(request)

    async def _answer(self, request: web.Request, call: Call, number: int, rule: FaultRule | None) -> Said | None:
        """Work, and return what is to be said; None for a connection that closes without a word."""
        fault = rule.fault if rule is not None else Fault.NONE
        if fault is Fault.HANG:
            self._announce("hanging", key=call.ref, request=number)
            await self.gate.hold(call.ref)
            return None
        said = self._workshop.before_work(call, rule)
        if said is None and call.kind == "lookup":
            said = self._workshop.look_up(call, f"{request.scheme}://{request.host}")
        said = said or self._workshop.recognise(call) or await self._work(call, number, rule)
        self._announce(said.meaning.value, key=call.ref, request=number, fault=fault.value)
        if fault in HELD_FAULTS and await self.gate.hold(call.ref) == "drop":
            return None
        return None if fault is Fault.ACCEPT_THEN_DROP else said

    async def _work(self, call: Call, number: int, rule: FaultRule | None) -> Said:
        """Do it, after the time that it takes. Work that has begun ends, also when the caller is gone."""
        held = rule is not None and rule.fault is Fault.WORK_UNTIL_RELEASED
        if self._workshop.work_s == 0 and not held:
            return self._workshop.do(call, number, rule)
        task = asyncio.create_task(self._slow_work(call, number, rule), name=f"work-{number}")
        self._working.add(task)
        task.add_done_callback(self._working.discard)
        return await asyncio.shield(task)

    async def _slow_work(self, call: Call, number: int, rule: FaultRule | None) -> Said:
        await asyncio.sleep(self._workshop.work_s)
        if rule is not None and rule.fault is Fault.WORK_UNTIL_RELEASED:
            self._announce("working", key=call.ref, request=number)
            await self.gate.hold(call.ref)
        return self._workshop.do(call, number, rule)

    async def _deliver(
        self, request: web.Request, number: int, said: Said, rule: FaultRule | None
    ) -> web.StreamResponse:
        """Send the answer, or what the fault makes of it."""
        answer = said.answer
        fault = rule.fault if rule is not None else Fault.NONE
        text = rule.body if rule is not None and rule.body is not None else None
        status = (rule.status if rule is not None else None) or answer.status
        match fault:
            case Fault.SERVER_ERROR_AFTER_EFFECT:
                answer = Answer(500, b'{"message": "internal error"}', {"Content-Type": "application/json"})
            case Fault.GARBAGE:
                answer = Answer(status, (GARBAGE if text is None else text).encode(), {"Content-Type": "text/html"})
            case Fault.EMPTY:
                answer = Answer(status, b"")
            case Fault.HALF_ANSWER:
                answer = Answer(status, answer.body, answer.headers)
            case _:
                pass
        self._workshop.book.answer(
            request=number, status=answer.status, meaning=said.meaning, provider_id=said.answer.provider_id
        )
        if fault is Fault.HALF_ANSWER:
            return _half(request, answer)
        if fault is Fault.SLOW_DRIP:
            return await _drip(request, answer, rule.delay_s if rule is not None else 0)
        return web.Response(status=answer.status, body=answer.body, headers=answer.headers)

    def _book_part(self, request: web.Request, headers: dict[str, str]) -> None:
        """A body that ended early is a request that arrived in part: in the book, without an effect."""
        call = self._workshop.dialect.read(request.method, request.raw_path, headers, b"")
        if call is not None:
            self._workshop.write_request(call, Fault.NONE, complete=False)


def _drop(request: web.Request) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.abort()
    # Nobody gets to see it: the connection is gone.
    return web.Response(status=500)


def _half(request: web.Request, answer: Answer) -> web.StreamResponse:
    if request.transport is not None:
        head = f"HTTP/1.1 {answer.status} Half", "Content-Type: application/json", f"Content-Length: {len(answer.body)}"
        request.transport.write("\r\n".join((*head, "", "")).encode() + answer.body[: len(answer.body) // 2])
        request.transport.close()
    return web.Response(status=500)


async def _drip(request: web.Request, answer: Answer, delay_s: float) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status, headers=answer.headers)
    response.content_length = len(answer.body)
    await response.prepare(request)
    for index in range(len(answer.body)):
        await response.write(answer.body[index : index + 1])
        await asyncio.sleep(delay_s)
    await response.write_eof()
    return response
