"""The parts that a provider contract is made of.

Plain, frozen models without I/O. JMESPath reads, a JSON pointer places, templates serve paths and query fields only. A
part refuses to load when it claims more than it states; it never fills a gap with a hopeful default.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Final, Literal

import jmespath
from jmespath.exceptions import JMESPathError
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

TEMPLATE: Final = re.compile(r"\{([^{}]*)\}")
_SOURCES: Final = re.compile(r"payload:(/[^/{}]+)+|credential:[a-z_]+|key|marker|since:(iso|unix)|cursor")


def refuse(field: str, what: str, fix: str) -> PydanticCustomError:
    """An error that names the field inside the part, what is wrong and what to write instead."""
    return PydanticCustomError("contract", "{what}; {fix}", {"field": field, "what": what, "fix": fix})


def _is_jmespath(text: str) -> str:
    try:
        jmespath.compile(text)
    except JMESPathError as error:
        first_line = str(error).splitlines()[0]
        raise refuse("", f"{text!r} is not a JMESPath expression ({first_line})", "correct the expression") from error
    return text


def _is_pointer(text: str) -> str:
    if not re.fullmatch(r"(/[^/]+)+", text):
        raise refuse("", f"{text!r} is not a JSON pointer", "start it with '/', one step per member, as in /tags/0")
    return text


def _is_template(text: str) -> str:
    for source in TEMPLATE.findall(text):
        if not _SOURCES.fullmatch(source):
            known = "{payload:/pointer}, {credential:name}, {key}, {marker}, {since:iso}, {since:unix} or {cursor}"
            raise refuse("", f"the template names {{{source}}}, which is unknown", f"use {known}")
    return text


def _is_regex(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise refuse("", f"{text!r} is not a regular expression ({error})", "correct the expression") from error
    return text


JmesPath = Annotated[str, AfterValidator(_is_jmespath)]
"""Read against {status, headers (lower-case names), body}, or against one item of a lookup."""
Pointer = Annotated[str, AfterValidator(_is_pointer)]
Template = Annotated[str, AfterValidator(_is_template)]
Regex = Annotated[str, AfterValidator(_is_regex)]
HeaderName = Annotated[str, Field(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")]
Status = Annotated[int, Field(ge=100, le=599)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Part(BaseModel):
    """Frozen, and an unknown field is an error: a misspelt promise must not be dropped silently."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ContractType(StrEnum):
    """How an unknown outcome can be resolved."""

    A = "A"
    """Key with retention: replay inside the window, then lookup, then a person."""
    A_PLUS = "A+"
    """Key that can be queried: lookup by the key."""
    B = "B"
    """Key in the body: replay inside the window."""
    C = "C"
    """Natural key: replay while the object lives."""
    D = "D"
    """Lookup by a marker only."""
    E = "E"
    """Neither: a person."""


class Step(StrEnum):
    """One step of resolving an unknown, in the contract's order."""

    LOOKUP = "lookup"
    REPLAY = "replay"
    PERSON = "person"


class AnswerRule(Part):
    """A set of answers that mean the same: the status is listed and `when` (if given) reads as true."""

    statuses: tuple[Status, ...] = Field(min_length=1)
    when: JmesPath | None = None
    reason: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")] | None = None
    """Reason class in snake_case; `http_<status>` when absent."""


class ThrottleRule(AnswerRule):
    """Answers by which the provider says that it did nothing and wants fewer requests."""

    reset_header: HeaderName | None = None
    """A header with the instant (Unix seconds) from which requests are taken again, read against the answer's Date."""
    min_wait_s: Seconds = 0


class HoldRule(AnswerRule):
    """Answers by which the provider did nothing, and will do nothing until a person changes something."""

    pauses_account: bool = True
    """False where the answer concerns this one action only."""


class Correlation(Part):
    """Where our own mark stands in the first request, so that a lookup can find it."""

    pointer: Pointer
    place: Literal["append", "set"] = "set"
    """append: after the text that stands there; set: as the member's value, refused when something stands there."""
    template: Template = "{key}"
    """The mark; {key} is the wire key."""
    visible_to_recipient: bool
    max_length: int | None = None

    @model_validator(mode="after")
    def _names_the_key(self) -> Correlation:
        if "{key}" not in self.template:
            raise refuse("template", "a mark without the key finds nothing", "put {key} into the template")
        return self


class Acceptance(Part):
    """What proves that the provider took the action."""

    statuses: tuple[Status, ...] = Field(min_length=1)
    when: JmesPath | None = None
    """Must read as true on the parsed answer; a 2xx for which it does not is no acceptance."""
    id: JmesPath | None = None
    """Where the provider's id stands; then an answer without one is unreadable, hence unknown."""
    status_decides: bool = False
    """True where the status alone proves acceptance and no id is expected."""

    @model_validator(mode="after")
    def _can_be_read(self) -> Acceptance:
        if self.id is None and not self.status_decides:
            fix = "write id: body.id, or status_decides: true where the provider documents that the status is all"
            raise refuse("id", "acceptance names neither an id nor that the status decides", fix)
        return self


class Paging(Part):
    """How to read every page. `single` states that one answer is always complete."""

    kind: Literal["single", "link_header", "cursor"]
    cursor: JmesPath | None = None
    """For cursor: where the next cursor stands; {cursor} in the query places it."""
    max_pages: Annotated[int, Field(ge=1, le=1000)] = 20

    @model_validator(mode="after")
    def _has_its_cursor(self) -> Paging:
        if (self.kind == "cursor") != (self.cursor is not None):
            raise refuse(
                "cursor", "paging by cursor and a cursor belong together", "write kind: cursor with cursor: PATH"
            )
        return self


class Lookup(Part):
    """How to ask whether the action exists, and how far the answer can be trusted."""

    method: Literal["GET", "POST"] = "GET"
    path: Template
    query: dict[str, Template] = Field(default_factory=dict)
    by: Literal["marker", "key"] = "marker"
    statuses: tuple[Status, ...] = (200,)
    when: JmesPath | None = None
    """Must read as true for the answer to count, for providers whose 200 may mean no."""
    items: JmesPath
    """Where the list stands."""
    read: JmesPath
    """What of an item is compared with the marker or the key."""
    compare: Literal["equals", "contains"] = "equals"
    id: JmesPath
    """Where the provider's id stands in the item."""
    paging: Paging | None = None
    consistency: Literal["strong", "eventual", "unpublished"]
    settle_s: Seconds | None = None
    """How long after the last possible effect an empty answer may still be early."""
    retention_s: Seconds | None = None
    """How long the provider keeps what is looked up; None: as long as the object lives."""
    since_margin_s: Seconds = 300
    """How far before the first attempt {since} lies, for clocks that differ."""
    authoritative: bool = False
    rests_on: str | None = None
    """Why an empty answer is proof, and what it does not cover."""
    throttling: tuple[ThrottleRule, ...] = (ThrottleRule(statuses=(429,), reason="throttled"),)

    @model_validator(mode="after")
    def _states_what_it_claims(self) -> Lookup:
        if self.settle_s is None:
            fix = "write settle_s: SECONDS"
            raise refuse("settle_s", "a lookup without a settle time claims too much", fix)
        if self.compare == "contains" and self.by == "key":
            fix = "write by: marker with a correlation whose template delimits the key, or compare: equals"
            raise refuse("compare", "a bare key is found inside longer keys", fix)
        if self.authoritative and self.paging is None:
            fix = "write paging: {kind: single | link_header | cursor}"
            raise refuse("paging", "absence cannot be proof without a paging rule", fix)
        if self.authoritative and not self.rests_on:
            fix = "write rests_on: why an empty answer is proof and what it does not cover"
            raise refuse("rests_on", "absence is called proof without a reason", fix)
        return self


class Receipts(Part):
    """What the provider reports after acceptance."""

    delivered: tuple[str, ...] = ()
    undelivered: tuple[str, ...] = ()
    signature: str | None = None
    correlates_by: JmesPath | None = None


class Limits(Part):
    """What the provider bears; accounts may set less."""

    payload_max_bytes: Annotated[int, Field(ge=64)] = 262_144
    rate_per_s: Annotated[float, Field(gt=0)] | None = None
    concurrency: Annotated[int, Field(ge=1)] | None = None


class Source(Part):
    """Where a fact was read."""

    title: str
    checked_on: str | None = None
    """ISO date; the contract's own `checked_on` when absent."""
