"""The same servers in containers, for machines with Docker: STACK=containers.

The images carry the versions of connectors/jars.lock. The tests reach them over published ports of 127.0.0.1, Connect
reaches the others by their names on a network of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import psycopg
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network
from testcontainers.core.wait_strategies import HttpWaitStrategy, LogMessageWaitStrategy

from outbox_relay.local.jars import version_of
from outbox_relay.local.ports import free_port
from outbox_relay.local.servers import MAJOR_VARIABLE
from tests.plugins.places import OWNER

POSTGRES = f"postgres:{os.environ.get(MAJOR_VARIABLE) or 18}"
KAFKA = f"apache/kafka:{version_of('kafka_2.13')}"
CONNECT = f"quay.io/debezium/connect:{version_of('debezium-connector-postgres')}"
PASSWORD = "trial"
_POSTGRES_OPTIONS = {
    "wal_level": "logical",
    "max_connections": "200",
    "max_wal_senders": "64",
    "max_replication_slots": "64",
    "fsync": "off",
    "full_page_writes": "off",
}
_BROKER = {
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_LISTENERS": "INSIDE://:9092,CONTROLLER://:9093,OUTSIDE://:9094",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT,OUTSIDE:PLAINTEXT",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "INSIDE",
    "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "false",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
}
_CONNECT = {
    "BOOTSTRAP_SERVERS": "kafka:9092",
    "GROUP_ID": "outbox-connect",
    "CONFIG_STORAGE_TOPIC": "outbox-connect-configs",
    "OFFSET_STORAGE_TOPIC": "outbox-connect-offsets",
    "STATUS_STORAGE_TOPIC": "outbox-connect-status",
    "CONNECT_CONFIG_STORAGE_REPLICATION_FACTOR": "1",
    "CONNECT_OFFSET_STORAGE_REPLICATION_FACTOR": "1",
    "CONNECT_STATUS_STORAGE_REPLICATION_FACTOR": "1",
    "CONNECT_OFFSET_STORAGE_PARTITIONS": "1",
    "CONNECT_STATUS_STORAGE_PARTITIONS": "1",
    "CONNECT_TOPIC_CREATION_ENABLE": "false",
    "CONNECT_CONNECTOR_CLIENT_CONFIG_OVERRIDE_POLICY": "All",
    "CONNECT_OFFSET_FLUSH_INTERVAL_MS": "5000",
    "CONNECT_SCHEDULED_REBALANCE_MAX_DELAY_MS": "0",
}


class ContainersPlace:
    """PostgreSQL, Kafka and Debezium's Connect image on one Docker network."""

    def __init__(self) -> None:
        self._network = Network()
        self._started: list[DockerContainer] = []
        self._kafka_port = free_port()
        self._postgres: DockerContainer | None = None
        self._connect: DockerContainer | None = None

    def prepare(self, say: Callable[[str], None], *, kafka: bool) -> None:
        """Pull and start before any test's time runs: images are large."""
        say(f"starting containers: {POSTGRES}" + (f", {KAFKA}, {CONNECT}" if kafka else ""))
        self.start_postgres()
        if kafka:
            self.start_connect()

    def start_postgres(self) -> None:
        """Start PostgreSQL; connections inside the network need no password, as on the local stack."""
        if self._postgres is not None:
            return
        options = [part for name, value in _POSTGRES_OPTIONS.items() for part in ("-c", f"{name}={value}")]
        container = (
            self._on_network(POSTGRES, "postgres")
            .with_envs(POSTGRES_USER=OWNER, POSTGRES_PASSWORD=PASSWORD, POSTGRES_HOST_AUTH_METHOD="trust")
            .with_envs(POSTGRES_DB="postgres")
            .with_command(["postgres", *options])
            .with_exposed_ports(5432)
            # The image starts twice: once to set itself up, then for good.
            .waiting_for(LogMessageWaitStrategy("database system is ready to accept connections", times=2))
        )
        self._postgres = self._start(container)
        psycopg.connect(self.dsn("postgres", OWNER), connect_timeout=10).close()

    def start_connect(self) -> None:
        """Start the broker, then the worker: the other way round the worker would find nobody."""
        if self._connect is not None:
            return
        broker = self._on_network(KAFKA, "kafka").with_bind_ports(9094, self._kafka_port).with_envs(**_BROKER)
        broker.with_envs(
            KAFKA_ADVERTISED_LISTENERS=f"INSIDE://kafka:9092,OUTSIDE://127.0.0.1:{self._kafka_port}"
        ).waiting_for(LogMessageWaitStrategy("Kafka Server started"))
        self._start(broker)
        worker = self._on_network(CONNECT, "connect").with_envs(**_CONNECT).with_exposed_ports(8083)
        worker.waiting_for(HttpWaitStrategy(8083, "/connectors").for_status_code(200).with_startup_timeout(180))
        self._connect = self._start(worker)

    def dsn(self, database: str, role: str) -> str:
        """Over the published port."""
        assert self._postgres is not None
        port = self._postgres.get_exposed_port(5432)
        return f"postgresql://{role}:{PASSWORD}@{self._postgres.get_container_host_ip()}:{port}/{database}"

    def capture_url(self, database: str, role: str) -> str:
        """Over the network of the containers."""
        return f"postgresql://{role}:{PASSWORD}@postgres:5432/{database}"

    def bootstrap(self) -> str:
        """The listener for the outside."""
        return f"127.0.0.1:{self._kafka_port}"

    def connect_url(self) -> str:
        """Over the published port."""
        assert self._connect is not None
        return f"http://{self._connect.get_container_host_ip()}:{self._connect.get_exposed_port(8083)}"

    def stop(self) -> None:
        """Remove every container, then the network."""
        for container in reversed(self._started):
            container.stop()
        if self._started:
            self._network.remove()

    def _on_network(self, image: str, alias: str) -> DockerContainer:
        if not self._started:
            self._network.create()
        return DockerContainer(image).with_network(self._network).with_network_aliases(alias)

    def _start(self, container: DockerContainer) -> DockerContainer:
        container.start()
        self._started.append(container)
        return container
