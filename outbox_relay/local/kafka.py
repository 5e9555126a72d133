"""A Kafka broker of our own on loopback (KRaft, one node), and a Kafka Connect worker with Debezium.

Both run from the locked jars on one class path. Automatic topic creation is off, as in a well-kept cluster: a topic
that nobody made on purpose has the wrong partitions and retention.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from string import Template

from outbox_relay.errors import DependencyDown
from outbox_relay.local.cache import locked
from outbox_relay.local.guard import Guard
from outbox_relay.local.jars import version_of
from outbox_relay.local.java import Command, Java
from outbox_relay.local.ports import accepts, free_port
from outbox_relay.local.program import Program
from outbox_relay.resources import resource

_HEAP_MB = 384
_CLUSTER_ID = "b3V0Ym94LXJlbGF5LWxvY2"
_BROKER = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # A group of one consumer should read at once, and a killed consumer's partitions should move soon.
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "1000",
    # A killed broker may register again only when its old session has ended; the default waits nine seconds.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "log.segment.bytes": "67108864",
    "log.cleaner.dedupe.buffer.size": "8388608",
}
_LOGGING = """\
appenders=out
appender.out.type=Console
appender.out.name=OUT
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d{ISO8601} %p %c{1} %m%n
rootLogger.level=INFO
rootLogger.appenderRefs=out
rootLogger.appenderRef.out.ref=OUT
"""


class Broker:
    """The broker: start, stop, kill, pause, and start again on the same data and ports."""

    def __init__(self, directory: Path, log: Path, guard: Guard) -> None:
        self.directory = directory
        self.program = Program("Kafka broker", log, guard)
        self._port = 0
        self._controller_port = 0
        self._command: Command | None = None

    @property
    def bootstrap(self) -> str:
        """host:port for clients."""
        return f"127.0.0.1:{self._port}"

    def start(self, java: Java, class_path: str) -> None:
        """Start it and wait until it answers; about three seconds the first time, one with a warm cache."""
        if not self._port:
            self._port, self._controller_port = free_port(), free_port()
        properties, logging = self._write_configuration()
        if not (self.directory / "data").exists():
            self._format(java, class_path, properties, logging)
        self._command = java.command(
            "kafka.Kafka", [str(properties)], class_path=class_path, heap_mb=_HEAP_MB, log_config=logging
        )
        self.program.start(self._command.argv, environ=java.environ(), cwd=self.directory)
        self.program.wait_until(lambda: accepts(self._port), timeout_s=90)

    def stop(self, *, hurry: bool = False) -> None:
        """Controlled shutdown, or none at all in a hurry."""
        _stop(self.program, self._command, hurry=hurry)

    def kill(self) -> None:
        """SIGKILL."""
        self.program.kill()

    def _write_configuration(self) -> tuple[Path, Path]:
        self.directory.mkdir(parents=True, exist_ok=True)
        listeners = f"PLAINTEXT://127.0.0.1:{self._port},CONTROLLER://127.0.0.1:{self._controller_port}"
        settings = _BROKER | {
            "listeners": listeners,
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "log.dirs": str(self.directory / "data"),
        }
        properties = self.directory / "broker.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
        return properties, write_logging(self.directory)

    def _format(self, java: Java, class_path: str, properties: Path, logging: Path) -> None:
        """A formatted data directory holds no address, so one is made per version and copied: saves a JVM start."""
        with locked(f"formatted-kafka-{version_of('kafka_2.13')}") as cached:
            if not (cached / "data" / "meta.properties").exists():
                storage = ["format", "-t", _CLUSTER_ID, "-c", str(properties)]
                command = java.command(
                    "kafka.tools.StorageTool",
                    storage,
                    class_path=class_path,
                    heap_mb=128,
                    log_config=logging,
                    aot=False,
                )
                done = subprocess.run(command.argv, capture_output=True, text=True, check=False, env=java.environ())
                if done.returncode:
                    raise DependencyDown("the broker's storage could not be made", hint=done.stderr[-2000:])
                shutil.copytree(self.directory / "data", cached / "data", dirs_exist_ok=True)
        shutil.copytree(cached / "data", self.directory / "data", dirs_exist_ok=True)


class ConnectWorker:
    """A Kafka Connect worker in distributed mode: start, stop, kill, and start again with the same REST port."""

    def __init__(self, directory: Path, log: Path, guard: Guard) -> None:
        self.directory = directory
        self.program = Program("Kafka Connect", log, guard)
        self._port = 0
        self._command: Command | None = None

    @property
    def url(self) -> str:
        """The REST address."""
        return f"http://127.0.0.1:{self._port}"

    def start(self, java: Java, class_path: str, bootstrap: str) -> None:
        """Start it and wait until it has joined its group; the broker must answer already."""
        if not self._port:
            self._port = free_port()
        self.directory.mkdir(parents=True, exist_ok=True)
        properties = self.directory / "connect-worker.properties"
        template = Template(resource("connectors", "connect-worker.properties").read_text(encoding="utf-8"))
        properties.write_text(
            template.safe_substitute(
                bootstrap_servers=bootstrap, group_id="outbox-connect", rest_port=self._port, rebalance_delay_ms=0
            ),
            encoding="utf-8",
        )
        self._command = java.command(
            "org.apache.kafka.connect.cli.ConnectDistributed",
            [str(properties)],
            class_path=class_path,
            heap_mb=_HEAP_MB,
            log_config=write_logging(self.directory),
        )
        self.program.start(self._command.argv, environ=java.environ(), cwd=self.directory)
        self.program.wait_until(self._answers, timeout_s=120)

    def stop(self, *, hurry: bool = False) -> None:
        """Stop its tasks and leave the group, or end at once in a hurry."""
        _stop(self.program, self._command, hurry=hurry)

    def kill(self) -> None:
        """SIGKILL."""
        self.program.kill()

    def _answers(self) -> bool:
        # /connectors needs the group's state; / would answer before the worker can do anything.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"{self.url}/connectors", timeout=2) as answer:
                return isinstance(json.load(answer), list)
        except (OSError, urllib.error.URLError, ValueError):
            return False


def write_logging(directory: Path) -> Path:
    """The log4j file both programs use: everything to standard output, which goes to the log."""
    path = directory / "log4j2.properties"
    path.write_text(_LOGGING, encoding="utf-8")
    return path


def _stop(program: Program, command: Command | None, *, hurry: bool) -> None:
    if hurry or not program.running or command is None:
        program.kill()
        return
    # The first clean end of a program also writes its AOT cache, which takes a few seconds more.
    program.stop(patience_s=60 if command.makes else 20)
    command.keep_cache()
