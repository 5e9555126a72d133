"""The provider's reading of a contract: which request is which operation, whose action it is, and what a lookup shows.

Pure: it decides nothing about faults and opens nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from outbox_relay.providers.contract import Operation, ProviderContract
from outbox_relay.providers.parts import TEMPLATE, Lookup
from outbox_relay.trial.documents import marked_key, parse_body, pick
from outbox_relay.trial.memory import Answer, Document, ProviderClock, Shelf, Thing
from outbox_relay.trial.shapes import Shape, as_answer

Kind = Literal["operation", "lookup"]
PAGE_SIZE = 100
MESSAGE_ID = "webhook-id"
"""Names the action to a receiver of Standard Webhooks, also to one that does not deduplicate."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request as the provider understands it."""

    kind: Kind
    name: str
    """The operation that it asks for, or looks up."""
    operation: Operation
    method: str
    url: str
    values: dict[str, str]
    """What the path named, by the template's source, such as payload:/owner."""
    query: dict[str, str]
    body: bytes
    document: Document
    ref: str | None
    wire_key: str | None
    account: str

    @property
    def body_sha256(self) -> str:
        """Hash of the body's bytes."""
        return hashlib.sha256(self.body).hexdigest()


@dataclass(frozen=True, slots=True)
class _Route:
    kind: Kind
    name: str
    operation: Operation
    method: str
    path: re.Pattern[str]
    sources: tuple[str, ...]


class Dialect:
    """Understands the requests of one contract."""

    def __init__(self, contract: ProviderContract) -> None:
        self.contract = contract
        self._routes: list[_Route] = []
        for name, operation in contract.operations.items():
            self._add("operation", name, operation, operation.method, operation.path)
            if operation.lookup is not None:
                self._add("lookup", name, operation, operation.lookup.method, operation.lookup.path)

    def _add(self, kind: Kind, name: str, operation: Operation, method: str, template: str) -> None:
        pieces = TEMPLATE.split(template)
        literal = [re.escape(piece) if index % 2 == 0 else "([^/]+)" for index, piece in enumerate(pieces)]
        path = re.compile("".join(literal) or "/?")
        self._routes.append(_Route(kind, name, operation, method, path, tuple(pieces[1::2])))

    def read(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Call | None:
        """Understand a request; None when the provider has no such address. Header names are in lower case."""
        parts = urlsplit(url)
        for route in self._routes:
            match = route.path.fullmatch(parts.path)
            if match is not None and route.method == method:
                document = parse_body(body, route.operation.body)
                key = self._key(route.operation, headers, document)
                correlation = route.operation.correlation
                marked = marked_key(document, correlation) if correlation is not None else None
                return Call(
                    kind=route.kind,
                    name=route.name,
                    operation=route.operation,
                    method=method,
                    url=url,
                    values=dict(zip(route.sources, map(unquote, match.groups()), strict=True)),
                    query=self._asked(route.kind, parts.query, body),
                    body=body,
                    document=document,
                    ref=(key or marked or headers.get(MESSAGE_ID)) if route.kind == "operation" else None,
                    wire_key=key,
                    account=self.account(headers, document),
                )
        return None

    @staticmethod
    def _asked(kind: Kind, query: str, body: bytes) -> dict[str, str]:
        """The fields of the query, and of the form where a lookup sends one."""
        form = body.decode("utf-8", "replace") if kind == "lookup" else ""
        return dict(parse_qsl(query, keep_blank_values=True)) | dict(parse_qsl(form, keep_blank_values=True))

    def account(self, headers: Mapping[str, str], document: Document) -> str:
        """A short hash of the credential, `none` where the contract has none, empty when it is missing."""
        auth = self.contract.auth
        match auth.kind:
            case "none":
                return "none"
            case "body":
                secret = pick(document, auth.pointer or "") or ""
            case "header":
                secret = headers.get((auth.header or "").lower(), "")
            case _:
                secret = headers.get("authorization", "")
        return hashlib.sha256(secret.encode()).hexdigest()[:12] if secret else ""

    def _key(self, operation: Operation, headers: Mapping[str, str], document: Document) -> str | None:
        rule = operation.idempotency
        if rule.kind == "none":
            return None
        if rule.kind == "header":
            key = headers.get((rule.name or "").lower())
            return key.strip('"') if key is not None and rule.quoted else key
        return pick(document, rule.pointer or "")


class Listing:
    """Answers lookups from the shelf, page by page."""

    def __init__(self, shelf: Shelf, shape: Shape, clock: ProviderClock) -> None:
        self.page_size = PAGE_SIZE
        """An upper bound; a caller may ask for less."""
        self.scattered = False
        """Ids and times in no order, as where a record is spread over many machines; the order does not change."""
        self._shelf = shelf
        self._shape = shape
        self._clock = clock

    def answer(self, call: Call, origin: str) -> Answer:
        """One page of what the lookup sees now. `origin` starts the links to other pages."""
        lookup = call.operation.lookup
        if lookup is None:
            return as_answer(404, {"message": "not found"})
        things = [
            thing
            for thing in self._shelf.visible(account=call.account, now=self._clock.now())
            if thing.operation == call.name and self._wanted(thing, call, lookup)
        ]
        if self._shape.newest_first or call.query.get("direction") == "desc":
            things.reverse()
        if self.scattered:
            things.sort(key=lambda thing: hashlib.sha256(thing.provider_id.encode()).digest())
        asked = next((int(call.query[name]) for name in ("per_page", "limit") if name in call.query), PAGE_SIZE)
        size = max(1, min(asked, self.page_size))
        start = self._start(things, call, lookup, size)
        items = [self._shape.listed(call.operation, thing, call.query) for thing in things[start : start + size]]
        more = start + size < len(things)
        cursor = things[start + size - 1].provider_id if more else None
        body = self._shape.page(call.operation, items, cursor)
        return as_answer(200, body, headers=self._links(call, lookup, origin, more=more))

    def _start(self, things: list[Thing], call: Call, lookup: Lookup, size: int) -> int:
        if lookup.paging is not None and lookup.paging.kind == "cursor":
            name = next((name for name, value in lookup.query.items() if "{cursor}" in value), "cursor")
            ids = [thing.provider_id for thing in things]
            after = call.query.get(name)
            return ids.index(after) + 1 if after in ids else 0
        return (int(call.query.get("page", "1")) - 1) * size

    def _links(self, call: Call, lookup: Lookup, origin: str, *, more: bool) -> dict[str, str]:
        if not more or lookup.paging is None or lookup.paging.kind != "link_header":
            return {}
        following = call.query | {"page": str(int(call.query.get("page", "1")) + 1)}
        return {"Link": f'<{origin}{urlsplit(call.url).path}?{urlencode(following)}>; rel="next"'}

    def _wanted(self, thing: Thing, call: Call, lookup: Lookup) -> bool:
        for source, value in call.values.items():
            if self._value(thing, source) != value:
                return False
        for name, template in lookup.query.items():
            sources = TEMPLATE.findall(template)
            given = call.query.get(name)
            if len(sources) == 1 and template == f"{{{sources[0]}}}" and given:
                if sources[0].startswith("since:"):
                    if thing.made_at < _instant(given):
                        return False
                elif sources[0] != "cursor" and self._value(thing, sources[0]) != given:
                    return False
        return True

    def _value(self, thing: Thing, source: str) -> str | None:
        if source in ("key", "marker"):
            return thing.ref
        return thing.values.get(source) or pick(thing.document, source.removeprefix("payload:"))


def _parameters(route: _Route, query: str, body: bytes) -> dict[str, str]:
    """The parameters of a call: of the query, and of the form in which a POSTed lookup may put them."""
    form = body.decode("utf-8", "replace") if route.kind == "lookup" and route.method == "POST" else ""
    return dict(parse_qsl(query, keep_blank_values=True)) | dict(parse_qsl(form, keep_blank_values=True))


def _instant(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return datetime.fromisoformat(text).timestamp()
