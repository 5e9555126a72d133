"""Settings from the environment: the names, defaults, limits and cross-checks of every OUTBOX_ variable.

Read once, by the programs' composition roots only; everything else gets values as arguments. An error names the
variable and never shows a value, because values may hold passwords.
"""

from __future__ import annotations

import difflib
import os
import socket
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Literal, Self, TypeVar

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings import SettingsError as SourceError

from outbox_relay.errors import SettingsError

T = TypeVar("T")

PREFIX = "OUTBOX_"
FILE_SUFFIX = "_FILE"
LEASE_MARGIN_S = 0.5
"""What a lease must leave beside the provider's deadline for the claim's round trip and the wait for a connection."""
SECRET_FILE_MAX_BYTES = 65_536


class Wakeups(StrEnum):
    """What wakes the relay and the reconciler apart from due times and the sweep."""

    KAFKA = "kafka"
    LEDGER = "ledger"


def variable(field: str) -> str:
    """The environment variable of a field, such as OUTBOX_LEASE_S."""
    return PREFIX + field.upper()


class FileSource(PydanticBaseSettingsSource):
    """Reads OUTBOX_X from the file that OUTBOX_X_FILE names, as mounted secrets are usually given."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[str | None, str, bool]:
        """The file's text without its last line break; None when no file is named."""
        pointer = variable(field_name) + FILE_SUFFIX
        path = os.environ.get(pointer)
        if not path:
            return None, field_name, False
        if variable(field_name) in os.environ:
            raise SettingsError(f"{variable(field_name)} and {pointer} are both set", hint="set only one of the two")
        try:
            with Path(path).open(encoding="utf-8") as file:
                text = file.read(SECRET_FILE_MAX_BYTES)
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(
                f"the file that {pointer} names cannot be read: {type(error).__name__}",
                hint="check the path, the mount and the file's permissions",
            ) from error
        return text.rstrip("\r\n"), field_name, self.field_is_complex(field)

    def __call__(self) -> dict[str, object]:
        """All values that come from files."""
        found: dict[str, object] = {}
        for name, field in self.settings_cls.model_fields.items():
            value, key, is_complex = self.get_field_value(field, name)
            if value is not None:
                try:
                    found[key] = self.prepare_field_value(name, field, value, is_complex)
                except ValueError as error:
                    raise SourceError(f"{variable(name)}{FILE_SUFFIX} does not hold valid JSON") from error
        return found


class Settings(BaseSettings):
    """Everything that can be set. Optional ones are demanded by the accessor methods of the programs that need them."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_ignore_empty=True,
        frozen=True,
        extra="ignore",
        hide_input_in_errors=True,
    )

    database_url: SecretStr | None = Field(None, description="libpq URL of the ledger, with this program's role.")
    environment: str | None = Field(
        None, pattern=r"^[a-z][a-z0-9_-]{0,62}$", description="Must equal the ledger's, such as production or test."
    )
    instance: str = Field(
        default_factory=lambda: f"{socket.gethostname()}-{os.getpid()}",
        min_length=1,
        max_length=200,
        description="Name of this process in claims and logs; default is host name and process id.",
    )
    providers_file: Path | None = Field(None, description="The accounts that may be used: providers.yaml.")
    contracts_dir: Path | None = Field(None, description="Directory with provider contracts besides the shipped ones.")

    wakeups: Wakeups = Field(Wakeups.KAFKA, description="kafka, or ledger: no Kafka, adaptive polling.")
    kafka_bootstrap_servers: str | None = Field(None, description="host:port list of the brokers.")
    kafka_group_id: str | None = Field(
        None, description="Consumer group; default outbox-relay or outbox-reconciler by program."
    )
    kafka_options: dict[str, str | int | float | bool] = Field(
        default_factory=dict, repr=False, description="JSON of more librdkafka settings, such as TLS and SASL."
    )
    topic_prefix: str = Field(
        "outbox", pattern=r"^[A-Za-z0-9._-]{1,200}$", description="The topic is <prefix>.delivery-status.v1."
    )
    topic_partitions: int = Field(12, ge=1, le=10_000, description="Partitions of the topic when it is created.")
    topic_replication: int = Field(1, ge=1, le=10, description="Replicas of the topic; 3 in production.")
    topic_retention_days: int = Field(14, ge=1, le=3650, description="How long the topic keeps records.")

    connect_url: str | None = Field(None, description="Kafka Connect's REST address, such as http://connect:8083.")
    connector_name: str = Field("outbox", min_length=1, max_length=200, description="Name of the connector.")
    slot_name: str = Field("outbox", pattern=r"^[a-z0-9_]{1,63}$", description="Replication slot of the connector.")
    capture_database_url: SecretStr | None = Field(
        None, description="libpq URL that the connector uses to read the ledger, with the capture role."
    )

    lease_s: float = Field(30.0, gt=0, le=3600, description="How long a claim is held; more than the deadline.")
    provider_deadline_s: float = Field(
        10.0, gt=0, le=600, description="Total time for one request to a provider, connection included."
    )
    sweep_s: float = Field(5.0, ge=0.05, le=3600, description="How often due work is looked for without a wake-up.")
    slots: int = Field(64, ge=1, le=10_000, description="Requests in flight per account unless providers.yaml says.")
    linger_ms: float = Field(3.0, ge=0, le=1000, description="How long an outcome may wait for company in its write.")

    redact_after_days: int = Field(
        90, ge=0, le=36_500, description="Payload and recipient go so long after the last change; 0: never."
    )
    events_retention_days: int = Field(
        400, ge=0, le=36_500, description="Events and evidence go so long after the last change; 0: never."
    )

    notify: bool = Field(
        False, description="on: every stored change also notifies the channel outbox_changes, without content."
    )

    listen: str = Field("127.0.0.1:9464", description="Address of /metrics, /livez and /readyz; port 0: any free one.")
    log_format: Literal["json", "console"] | None = Field(
        None, description="json or console; default is console on a terminal, else json."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least severe level logged.")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the hook's signature
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments, then variables, then the files that variables name; nothing is read from a .env file."""
        return init_settings, env_settings, FileSource(settings_cls)

    @field_validator("listen")
    @classmethod
    def _listen_is_host_and_port(cls, value: str) -> str:
        split_address(value)
        return value

    @model_validator(mode="after")
    def _lease_outlasts_deadline(self) -> Self:
        if self.lease_s < self.provider_deadline_s + LEASE_MARGIN_S:
            raise ValueError(
                f"OUTBOX_LEASE_S must exceed OUTBOX_PROVIDER_DEADLINE_S by at least {LEASE_MARGIN_S} s: a claim that "
                "can run out while its request is under way could be taken for unknown too early"
            )
        return self

    @model_validator(mode="after")
    def _history_outlasts_payloads(self) -> Self:
        if 0 < self.events_retention_days < self.redact_after_days:
            raise ValueError(
                "OUTBOX_EVENTS_RETENTION_DAYS must be at least OUTBOX_REDACT_AFTER_DAYS, or 0 (never): an action is "
                "redacted before its history is deleted"
            )
        return self

    @property
    def topic(self) -> str:
        """The delivery-status topic."""
        return f"{self.topic_prefix}.delivery-status.v1"

    @property
    def listen_address(self) -> tuple[str, int]:
        """Host and port of the probes and metrics."""
        return split_address(self.listen)

    @property
    def linger_s(self) -> float:
        """OUTBOX_LINGER_MS in seconds."""
        return self.linger_ms / 1000

    def dsn(self) -> str:
        """The ledger's URL, password included: never log it."""
        return self._needed("database_url", self.database_url).get_secret_value()

    def capture_dsn(self) -> str:
        """The connector's URL, password included: never log it."""
        return self._needed("capture_database_url", self.capture_database_url).get_secret_value()

    def needed_environment(self) -> str:
        """The environment that the ledger must have."""
        return self._needed("environment", self.environment)

    def needed_providers_file(self) -> Path:
        """Path of providers.yaml."""
        return self._needed("providers_file", self.providers_file)

    def needed_bootstrap_servers(self) -> str:
        """The brokers; with the hint that running without Kafka is possible."""
        if self.kafka_bootstrap_servers is None:
            raise SettingsError(
                "OUTBOX_KAFKA_BOOTSTRAP_SERVERS is not set",
                hint="set it to host:port of a broker, or set OUTBOX_WAKEUPS=ledger to run without Kafka",
            )
        return self.kafka_bootstrap_servers

    def needed_connect_url(self) -> str:
        """Kafka Connect's REST address."""
        return self._needed("connect_url", self.connect_url)

    @staticmethod
    def _needed(name: str, value: T | None) -> T:
        if value is None:
            meaning = Settings.model_fields[name].description
            raise SettingsError(f"{variable(name)} is not set", hint=f"set {variable(name)}: {meaning}")
        return value


def split_address(value: str) -> tuple[str, int]:
    """Split host:port, with brackets around an IPv6 host. Raises ValueError."""
    host, separator, port = value.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not separator or not host or not port.isdecimal() or int(port) > 65_535:
        raise ValueError("must be host:port, such as 0.0.0.0:9464")
    return host, int(port)


def load_settings() -> Settings:
    """Read the environment. Raises SettingsError with every problem at once and without any value."""
    try:
        return Settings()
    except ValidationError as error:
        raise SettingsError(_explain(error), hint="docs/operating.md lists every setting") from None
    except SourceError as error:
        raise SettingsError(str(error), hint="a setting that holds JSON must be valid JSON") from None


def _explain(error: ValidationError) -> str:
    problems = []
    for problem in error.errors(include_url=False, include_input=False, include_context=False):
        name = variable(str(problem["loc"][0])) + ": " if problem["loc"] else ""
        problems.append(name + problem["msg"].removeprefix("Value error, "))
    return "; ".join(problems)


def suspicious_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables that look like a misspelt setting, with the setting that was probably meant.

    Others with our prefix are left alone: a Kubernetes service named outbox puts variables of its own there.
    """
    known = {variable(field) for field in Settings.model_fields}
    known |= {name + FILE_SUFFIX for name in known}
    suspects = (name for name in environ if name.upper().startswith(PREFIX) and name.upper() not in known)
    matches = ((name, difflib.get_close_matches(name.upper(), known, n=1, cutoff=0.88)) for name in suspects)
    return {name: match[0] for name, match in matches if match}
