"""What a provider promises, declared, versioned and dated.

One file per provider, read by pydantic into frozen models. Pure: no client, no driver, no clock. A contract that claims
more than it states is refused when it is loaded, never when an answer has already been lost.
"""

from __future__ import annotations

from datetime import date
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

import jsonschema_rs
from pydantic import AfterValidator, Field, JsonValue, field_validator, model_validator

from outbox_relay.providers.idempotency import Idempotency
from outbox_relay.providers.parts import (
    TEMPLATE,
    Acceptance,
    AnswerRule,
    ContractType,
    Correlation,
    HeaderName,
    HoldRule,
    Limits,
    Lookup,
    Part,
    Pointer,
    Receipts,
    Seconds,
    Source,
    Step,
    Template,
    ThrottleRule,
    refuse,
)

_REPLAYABLE: Final = {ContractType.A, ContractType.A_PLUS, ContractType.B, ContractType.C}


def checked_base_url(text: str) -> str:
    """An origin with an optional path, without credentials, query or trailing slash."""
    parts = urlsplit(text)
    if parts.scheme not in ("https", "http") or not parts.hostname or parts.username or parts.query or parts.fragment:
        raise refuse("", f"{text!r} is not a base URL", "write https://host with an optional path and nothing else")
    return text.rstrip("/")


BaseUrl = Annotated[str, AfterValidator(checked_base_url)]


class Auth(Part):
    """How credentials travel. Values come from the account; a contract only names them."""

    kind: Literal["bearer", "basic", "header", "body", "none"]
    credential: str | None = None
    """Name of the credential (for basic: the password)."""
    username: str | None = None
    """For basic: name of the credential that is the user name; the password then may be absent."""
    header: HeaderName | None = None
    pointer: Pointer | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The credentials that an account must give."""
        return tuple(name for name in (self.username, self.credential) if name)

    @model_validator(mode="after")
    def _is_whole(self) -> Auth:
        if (self.kind == "header") != (self.header is not None):
            raise refuse("header", "kind header and a header name belong together", "write kind: header, header: NAME")
        if (self.kind == "body") != (self.pointer is not None):
            raise refuse("pointer", "kind body and a pointer belong together", "write kind: body, pointer: /member")
        if (self.kind == "none") == bool(self.names):
            raise refuse(
                "credential", "the kind and the credential do not fit", "name a credential, or write kind: none"
            )
        return self


class Operation(Part):
    """One thing that can be asked of a provider."""

    type: ContractType
    method: Literal["POST", "PUT", "PATCH"] = "POST"
    path: Template
    body: Literal["json", "form", "none"] = "json"
    omit: tuple[Pointer, ...] = ()
    """Members of the payload that serve the path only and are cut out of the body."""
    payload_schema: dict[str, JsonValue]
    """JSON Schema of the payload; what does not fit is put on hold, never sent."""
    recipients: tuple[Pointer, ...] = ()
    """Where the recipient stands; one of them must hold it. Empty when the contract cannot tell."""
    reaches: tuple[Pointer, ...] = ()
    """Everything that names somebody who is reached (text or list of texts), for the allow-list; else `recipients`."""
    defaults: dict[Pointer, str] = Field(default_factory=dict)
    """Texts placed into the body where the payload says nothing."""
    headers: dict[HeaderName, str] = Field(default_factory=dict)
    idempotency: Idempotency
    correlation: Correlation | None = None
    acceptance: Acceptance
    refusals: tuple[AnswerRule, ...] = ()
    """Refused for good; nothing was done."""
    holds: tuple[HoldRule, ...] = (HoldRule(statuses=(401, 403), reason="credential_refused"),)
    """Nothing was done, and nothing can be until a person changes something."""
    throttling: tuple[ThrottleRule, ...] = (ThrottleRule(statuses=(429,), reason="throttled"),)
    """Nothing was done; later is fine."""
    redirects_do_nothing: bool = False
    """True where the provider documents that a redirect did nothing; else a redirect leaves the outcome unknown."""
    lookup: Lookup | None = None
    processing_s: Seconds = 60
    """How long the provider may still work on a request whose connection is gone."""
    resolution: tuple[Step, ...] = Field(min_length=1)
    receipts: Receipts | None = None
    limits: Limits = Limits()

    @field_validator("payload_schema")
    @classmethod
    def _is_json_schema(cls, schema: dict[str, JsonValue]) -> dict[str, JsonValue]:
        try:
            jsonschema_rs.validator_for(schema)
        except (jsonschema_rs.ValidationError, ValueError) as error:
            first_line = str(error).splitlines()[0]
            raise refuse("", f"this is not a JSON Schema ({first_line})", "correct the schema") from error
        return schema

    @model_validator(mode="after")
    def _resolves_by_what_it_has(self) -> Operation:
        if self.resolution[-1] is not Step.PERSON or len(set(self.resolution)) != len(self.resolution):
            raise refuse("resolution", "every order ends with a person", "write each step once, person last")
        if (Step.LOOKUP in self.resolution) != (self.lookup is not None):
            fix = "declare lookup and name it in resolution, or neither"
            raise refuse("lookup", "lookup and resolution do not fit", fix)
        if Step.REPLAY in self.resolution and not self.idempotency.window_s:
            fix = "state an idempotency key with a window, or remove replay"
            raise refuse("resolution", "a replay without a key that is remembered is a second send", fix)
        if self.type in _REPLAYABLE and self.idempotency.kind == "none":
            raise refuse("type", f"type {self.type} claims a key", "declare idempotency, or write type: D or E")
        if self.type is ContractType.D and self.lookup is None:
            raise refuse("lookup", "type D claims a lookup", "declare lookup, or write type: E")
        if self.type is ContractType.E and self.resolution != (Step.PERSON,):
            raise refuse("resolution", "type E has neither key nor lookup", "write resolution: [person]")
        if self.lookup and self.lookup.by == "marker" and self.correlation is None:
            raise refuse("correlation", "the lookup wants a mark that is never sent", "declare correlation")
        return self

    @model_validator(mode="after")
    def _renders_from_what_it_demands(self) -> Operation:
        required = self.payload_schema.get("required")
        names = required if isinstance(required, list) else []
        for text in (self.path, *([self.lookup.path] if self.lookup else [])):
            for source in TEMPLATE.findall(text):
                if source.startswith("payload:/") and source.split("/")[1] not in names:
                    fix = f"add {source.split('/')[1]} to payload_schema.required"
                    raise refuse("path", f"the path needs {{{source}}}, which a payload may lack", fix)
        if self.payload_schema.get("type") != "object":
            raise refuse("payload_schema", "a payload is a JSON object", "write type: object")
        return self


class ProviderContract(Part):
    """Everything declared about one provider. `contract_version` tells apart every edit of the file."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,62}$")]
    version: Annotated[str, Field(pattern=r"^[0-9A-Za-z.-]+$")]
    title: str
    checked_on: date
    confidence: Literal["documented", "observed", "memory"]
    stability: Literal["stable", "preview"] = "stable"
    type: ContractType
    base_url: BaseUrl | None = None
    """None: every account gives its own."""
    auth: Auth
    adapter: str | None = None
    """Entry point in the group outbox_relay.adapters that signs each attempt."""
    adapter_credentials: tuple[str, ...] = ()
    headers: dict[HeaderName, str] = Field(default_factory=dict)
    identical_across_attempts: tuple[str, ...] = ("method", "url", "key", "body", "account")
    """What a replay repeats exactly; an adapter's signature is made anew."""
    account_identity: str = "declared"
    limits: Limits = Limits()
    operations: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_.]{0,62}$")], Operation] = Field(min_length=1)
    sources: tuple[Source, ...] = Field(min_length=1)
    notes: str | None = None
    digest: str = ""
    """First 12 hex digits of the file's SHA-256; set by the registry."""

    @property
    def contract_version(self) -> str:
        """`<version>+<12 hex of the file's SHA-256>`."""
        return f"{self.version}+{self.digest}"

    @property
    def credentials(self) -> tuple[str, ...]:
        """The names of every credential that an account of this provider must give."""
        return self.auth.names + self.adapter_credentials

    @model_validator(mode="before")
    @classmethod
    def _operations_inherit_the_type(cls, given: object) -> object:
        if isinstance(given, dict) and isinstance(given.get("operations"), dict):
            inherited = given.get("type")
            operations = {
                name: {"type": inherited, **operation} if isinstance(operation, dict) else operation
                for name, operation in given["operations"].items()
            }
            return {**given, "operations": operations}
        return given

    @model_validator(mode="after")
    def _is_not_only_remembered(self) -> ProviderContract:
        if self.confidence == "memory" and self.stability == "stable":
            fix = "read the sources and write confidence: documented, or write stability: preview"
            raise refuse("stability", "facts from memory are called stable", fix)
        return self
