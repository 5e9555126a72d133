"""How the simulated providers word their answers.

The base shape follows a contract alone. The others follow what the provider documents, so that a contract that reads
its own invention is found out; where they and the contract disagree, a test of this package fails.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Sequence

import jmespath

from outbox_relay.providers.contract import Operation, ProviderContract
from outbox_relay.providers.parts import AnswerRule
from outbox_relay.trial.documents import pick, place_path, satisfy
from outbox_relay.trial.memory import Answer, Document, ProviderClock, Thing

JSON_TYPE = {"Content-Type": "application/json; charset=utf-8"}


def as_answer(status: int, document: object, *, headers: dict[str, str] | None = None) -> Answer:
    """A JSON answer."""
    return Answer(status, json.dumps(document).encode(), JSON_TYPE | (headers or {}))


class Shape:
    """Answers made from a contract alone."""

    newest_first = False

    def __init__(self, contract: ProviderContract, clock: ProviderClock) -> None:
        self.contract = contract
        self.clock = clock

    def new_id(self, number: int, now: float, ref: str, document: Document) -> str:
        """The provider's id for its `number`th thing, made at `now` (seconds since 1970)."""
        del now, ref, document
        return f"{self.contract.name}_{number}"

    def made(self, operation: Operation, thing: Thing) -> Answer:
        """The acceptance, as the provider words it."""
        document: Document = {}
        headers: dict[str, str] = {}
        path = operation.acceptance.id
        if path is not None and path.startswith("headers."):
            headers[path.removeprefix("headers.").strip('"')] = thing.provider_id
        elif path is not None:
            place_path(document, path, thing.provider_id)
        if operation.acceptance.when:
            rule = AnswerRule(statuses=operation.acceptance.statuses, when=operation.acceptance.when)
            document = satisfy(rule)[1] | document
        return as_answer(operation.acceptance.statuses[0], document, headers=headers)

    def listed(self, operation: Operation, thing: Thing, query: dict[str, str]) -> Document:
        """One item of a lookup."""
        del query
        item: Document = {"created_at": self.clock.at(thing.made_at).isoformat(), **thing.document}
        lookup = operation.lookup
        if lookup is not None:
            place_path(item, f"body.{lookup.id}", thing.provider_id)
            if jmespath.search(lookup.read, item) is None:
                place_path(item, f"body.{lookup.read}", thing.ref)
        return item

    def page(self, operation: Operation, items: Sequence[Document], cursor: str | None) -> object:
        """The body of one page. `cursor` is None on the last."""
        lookup = operation.lookup
        path = lookup.items if lookup is not None else "body"
        document: Document = {"has_more": cursor is not None}
        if path == "body" or not place_path(document, path, list(items)):
            return list(items)
        if cursor is not None and lookup is not None and lookup.paging is not None and lookup.paging.cursor:
            place_path(document, lookup.paging.cursor, cursor)
        return document

    def refused(self, operation: Operation) -> Answer:
        """A refusal for good."""
        return as_answer(*satisfy(operation.refusals[0]))

    def mismatch(self, operation: Operation) -> Answer:
        """The key came with another body."""
        rules = operation.idempotency.mismatch
        return as_answer(*(satisfy(rules[0]) if rules else (409, {"message": "key used with another body"})))

    def in_progress(self, operation: Operation) -> Answer:
        """The key is still being worked on."""
        rules = operation.idempotency.in_progress
        return as_answer(*(satisfy(rules[0]) if rules else (409, {"message": "key in use"})))

    def throttled(self, retry_after: str | None) -> Answer:
        """Too many requests; nothing was done."""
        headers = {} if retry_after is None else {"Retry-After": retry_after}
        return as_answer(429, {"message": "too many requests"}, headers=headers)


class ResendShape(Shape):
    """Resend: an id and nothing else."""

    def new_id(self, number: int, now: float, ref: str, document: Document) -> str:
        """A UUID, the same in every run."""
        del now, ref, document
        return str(uuid.UUID(bytes=hashlib.sha256(f"email {number}".encode()).digest()[:16], version=4))


class GitHubShape(Shape):
    """GitHub: the object as it is shown everywhere."""

    def new_id(self, number: int, now: float, ref: str, document: Document) -> str:
        """A large integer, as text."""
        del now, ref, document
        return str(2_000_000_000 + number)

    def _object(self, thing: Thing) -> Document:
        at = self.clock.at(thing.made_at).strftime("%Y-%m-%dT%H:%M:%SZ")
        number = int(thing.provider_id)
        return {
            "id": number,
            "node_id": f"IC_{number}",
            "number": thing.number,
            "state": "open",
            "user": {"login": "outbox-relay-trial", "type": "Bot"},
            "created_at": at,
            "updated_at": at,
            **thing.document,
        }

    def made(self, operation: Operation, thing: Thing) -> Answer:
        """201 with the whole object."""
        del operation
        return as_answer(201, self._object(thing))

    def listed(self, operation: Operation, thing: Thing, query: dict[str, str]) -> Document:
        """The whole object."""
        del operation, query
        return self._object(thing)


class SlackShape(Shape):
    """Slack: 200 for everything, `ok` says which; a message is named by channel and ts."""

    newest_first = True

    def new_id(self, number: int, now: float, ref: str, document: Document) -> str:
        """A timestamp that is unique within its channel."""
        del ref, document
        return f"{int(now)}.{number:06d}"

    def _message(self, thing: Thing) -> Document:
        return {"type": "message", "ts": thing.provider_id, "text": pick(thing.document, "/text")}

    def made(self, operation: Operation, thing: Thing) -> Answer:
        """The message and where it stands."""
        del operation
        message = self._message(thing)
        channel = pick(thing.document, "/channel")
        return as_answer(200, {"ok": True, "channel": channel, "ts": message["ts"], "message": message})

    def listed(self, operation: Operation, thing: Thing, query: dict[str, str]) -> Document:
        """A message of the history; its metadata only when it is asked for."""
        del operation
        item = self._message(thing)
        if query.get("include_all_metadata") in ("true", "1") and "metadata" in thing.document:
            item["metadata"] = thing.document["metadata"]
        return item

    def page(self, operation: Operation, items: Sequence[Document], cursor: str | None) -> object:
        """One page of history."""
        del operation
        metadata = {"next_cursor": cursor or ""}
        more = cursor is not None
        return {"ok": True, "messages": list(items), "has_more": more, "response_metadata": metadata}

    def refused(self, operation: Operation) -> Answer:
        """200 that means no."""
        del operation
        return as_answer(200, {"ok": False, "error": "channel_not_found"})


class StripeShape(Shape):
    """Stripe: the object with its type, lists with has_more."""

    newest_first = True

    def _kind(self, operation_name: str) -> str:
        return "refund" if "refund" in operation_name else "payment_intent"

    def new_id(self, number: int, now: float, ref: str, document: Document) -> str:
        """An id that does not say its kind."""
        del now, ref, document
        return f"trial{number:012d}"

    def _object(self, thing: Thing) -> Document:
        kind = self._kind(thing.operation)
        at = int(thing.made_at)
        status = "succeeded" if kind == "refund" else "requires_payment_method"
        return {**thing.document, "id": thing.provider_id, "object": kind, "created": at, "status": status}

    def made(self, operation: Operation, thing: Thing) -> Answer:
        """200 with the whole object."""
        del operation
        return as_answer(200, self._object(thing))

    def listed(self, operation: Operation, thing: Thing, query: dict[str, str]) -> Document:
        """The whole object."""
        del operation, query
        return self._object(thing)

    def page(self, operation: Operation, items: Sequence[Document], cursor: str | None) -> object:
        """A list object."""
        del operation
        return {"object": "list", "data": list(items), "has_more": cursor is not None}

    def mismatch(self, operation: Operation) -> Answer:
        """400 of its own type."""
        del operation
        return as_answer(400, {"error": {"type": "idempotency_error", "message": "same key, other parameters"}})

    def in_progress(self, operation: Operation) -> Answer:
        """409 with a code."""
        del operation
        error = {"type": "invalid_request_error", "code": "idempotency_key_in_use", "message": "in use"}
        return as_answer(409, {"error": error})


class PagerDutyShape(Shape):
    """PagerDuty Events v2: the dedup key comes back, and is all the name the alert has."""

    def new_id(self, number: int, now: float, ref: str, document: Document) -> str:
        """The dedup key."""
        del number, now, document
        return ref

    def made(self, operation: Operation, thing: Thing) -> Answer:
        """202: taken for processing."""
        del operation
        return as_answer(202, {"status": "success", "message": "Event processed", "dedup_key": thing.ref})


SHAPES: dict[str, type[Shape]] = {
    "github": GitHubShape,
    "pagerduty": PagerDutyShape,
    "resend": ResendShape,
    "slack": SlackShape,
    "stripe": StripeShape,
}


def shape_of(contract: ProviderContract, clock: ProviderClock) -> Shape:
    """The wording of a provider, or the contract's own."""
    return SHAPES.get(contract.name, Shape)(contract, clock)
