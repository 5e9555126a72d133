"""Makes the status topic with stated partitions and retention, and the connector's heartbeat topic.

Topics are made on purpose, before the connector: one that a broker makes by itself has the wrong number of partitions,
and changing that later breaks the order per action. It never changes or deletes a topic that exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from outbox_relay.errors import ConditionNotMet, DependencyDown

DAY_MS = 86_400_000
_TIMEOUT_S = 20.0
_HEARTBEAT_RETENTION_MS = DAY_MS


@dataclass(frozen=True, slots=True)
class Topics:
    """The names of the topics under one prefix."""

    prefix: str
    connector: str

    @property
    def status(self) -> str:
        """Every change of state of every action, keyed by action id."""
        return f"{self.prefix}.delivery-status.v1"

    @property
    def heartbeat(self) -> str:
        """Where the connector says that it is alive while nothing happens; nobody has to read it."""
        return f"{self.prefix}.heartbeat.{self.connector}"


def ensure_topics(
    topics: Topics,
    *,
    bootstrap_servers: str,
    partitions: int,
    replication: int,
    retention_days: int,
    options: Mapping[str, str | int | float | bool] | None = None,
) -> list[str]:
    """Make the topics that do not exist and return their names.

    Raises ConditionNotMet when the status topic exists with another number of partitions, DependencyDown when the
    brokers do not answer or refuse.
    """
    admin = _admin(bootstrap_servers, options or {})
    wanted = [
        NewTopic(
            topics.status,
            num_partitions=partitions,
            replication_factor=replication,
            config={"cleanup.policy": "delete", "retention.ms": str(retention_days * DAY_MS)},
        ),
        NewTopic(
            topics.heartbeat,
            num_partitions=1,
            replication_factor=replication,
            config={"cleanup.policy": "delete", "retention.ms": str(_HEARTBEAT_RETENTION_MS)},
        ),
    ]
    try:
        made = [name for name, future in admin.create_topics(wanted).items() if _was_made(name, future)]
        if topics.status not in made:
            _check_partitions(admin, topics.status, partitions)
    except KafkaException as error:
        raise DependencyDown(
            f"Kafka did not make the topics: {_reason(error)}",
            hint="check OUTBOX_KAFKA_BOOTSTRAP_SERVERS, OUTBOX_KAFKA_OPTIONS and the right to create topics",
        ) from error
    return made


def partitions_of(topic: str, *, bootstrap_servers: str, options: Mapping[str, str | int | float | bool]) -> int | None:
    """How many partitions the topic has; None when there is no such topic."""
    admin = _admin(bootstrap_servers, options)
    try:
        return _partitions(admin, topic)
    except KafkaException as error:
        raise DependencyDown(f"Kafka does not answer: {_reason(error)}") from error


def _admin(bootstrap_servers: str, options: Mapping[str, str | int | float | bool]) -> AdminClient:
    # Warnings and worse only: the client's own notices go to standard error of a command that people read.
    quiet: dict[str, str | int | float | bool] = {"log_level": 4, "socket.timeout.ms": 10_000}
    return AdminClient(quiet | dict(options) | {"bootstrap.servers": bootstrap_servers})


def _was_made(_: str, future: Future[None]) -> bool:
    try:
        future.result(_TIMEOUT_S)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        raise
    return True


def _check_partitions(admin: AdminClient, topic: str, wanted: int) -> None:
    found = _partitions(admin, topic)
    if found is not None and found != wanted:
        raise ConditionNotMet(
            f"topic {topic} has {found} partitions, and {wanted} are configured",
            hint=f"set OUTBOX_TOPIC_PARTITIONS={found}: adding partitions breaks the order of actions in flight",
        )


def _partitions(admin: AdminClient, topic: str) -> int | None:
    metadata = admin.list_topics(topic, timeout=_TIMEOUT_S).topics.get(topic)
    return None if metadata is None or metadata.error is not None else len(metadata.partitions)


def _reason(error: KafkaException) -> str:
    cause = error.args[0]
    return cause.str() if isinstance(cause, KafkaError) else type(error).__name__
