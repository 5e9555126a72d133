"""Renders the Debezium connector's configuration and brings the connector to run with it.

The template is connectors/outbox-connector.json; connectors/README.md explains every setting. Applying twice changes
nothing. Waiting is for the task, not the connector: Connect says RUNNING of a connector whose only task has failed.
"""

from __future__ import annotations

import json
import re
import time
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from string import Template

from outbox_relay.capture.connect_api import ConnectApi, ConnectorStatus
from outbox_relay.capture.topic import Topics
from outbox_relay.errors import ConditionNotMet, DependencyDown, Refused, SettingsError
from outbox_relay.resources import resource

PUBLICATION = "outbox_events"
_POLL_S = 0.1
_HIDDEN = "********"


@dataclass(frozen=True, slots=True)
class Connector:
    """Everything the template needs."""

    name: str
    slot_name: str
    topic_prefix: str
    database_url: str = field(repr=False)
    """libpq URL as the Connect worker reaches the database, with the capture role. The password may be a reference
    that the worker resolves, such as ${env:NAME}."""
    publication: str = PUBLICATION
    heartbeat_ms: int = 10_000
    extra: Mapping[str, str] = field(default_factory=dict)
    """More connector settings, or other values for those of the template."""

    @property
    def topics(self) -> Topics:
        """The topics that it writes to."""
        return Topics(self.topic_prefix, self.name)


@dataclass(frozen=True, slots=True)
class Applied:
    """What `apply` did."""

    created: bool
    changed: tuple[str, ...]
    """Names of the settings that were not as they are now; empty when nothing changed."""
    status: ConnectorStatus


def render(connector: Connector) -> dict[str, str]:
    """The connector's configuration; raises SettingsError when the database URL does not say enough."""
    values = _database(connector.database_url) | {
        "connector_name": connector.name,
        "slot_name": connector.slot_name,
        "publication": connector.publication,
        "topic_prefix": connector.topic_prefix,
        "topic": connector.topics.status,
        "heartbeat_ms": str(connector.heartbeat_ms),
        "heartbeat_topic_pattern": re.escape(connector.topics.heartbeat).replace(r"\-", "-"),
    }
    template = json.loads(resource("connectors", "outbox-connector.json").read_text(encoding="utf-8"))
    # Value by value, after parsing: a quote in a password cannot break the document.
    return {name: Template(value).substitute(values) for name, value in template.items()} | dict(connector.extra)


def redacted(config: Mapping[str, str]) -> dict[str, str]:
    """The configuration as it may be shown: a password that is not a reference is hidden."""
    return {
        name: _HIDDEN if "password" in name and not value.startswith("${") else value for name, value in config.items()
    }


def apply(
    api: ConnectApi,
    connector: Connector,
    *,
    timeout_s: float = 60.0,
    slot_exists: Callable[[], bool] | None = None,
) -> Applied:
    """Create or update the connector, and wait until its task runs and, when it can be asked, its slot exists.

    A task that failed before is restarted. Raises ConditionNotMet with the task's own words when it fails, or when
    time runs out.
    """
    wanted = render(connector)
    before = api.config(connector.name)
    changed = tuple(sorted(_differences(before or {}, wanted)))
    created = before is None
    if changed:
        created = _put(api, connector.name, wanted, timeout_s)
    elif (status := api.status(connector.name)) is not None and status.failed:
        api.restart_failed(connector.name)
    return Applied(created, changed, await_task(api, connector, timeout_s=timeout_s, slot_exists=slot_exists))


def recover(
    api: ConnectApi,
    connector: Connector,
    *,
    timeout_s: float = 60.0,
    slot_exists: Callable[[], bool] | None = None,
) -> ConnectorStatus:
    """After the slot was lost: forget the position, make a new slot, send every event again, then follow the log.

    Restarting alone fails again, because the stored position is no longer on the server. Event ids stay as they were,
    so a consumer that deduplicates by them sees each event once.
    """
    deadline = time.monotonic() + timeout_s
    api.stop(connector.name)
    while not _offsets_forgotten(api, connector.name):
        if time.monotonic() > deadline:
            raise ConditionNotMet(f"connector {connector.name} did not stop within {timeout_s:.0f} s")
        time.sleep(_POLL_S)
    api.put_config(connector.name, render(connector))
    api.resume(connector.name)
    return await_task(api, connector, timeout_s=timeout_s, slot_exists=slot_exists)


def _offsets_forgotten(api: ConnectApi, name: str) -> bool:
    """Connect refuses while tasks of the connector are still ending."""
    try:
        api.forget_offsets(name)
    except (DependencyDown, Refused):
        return False
    return True


def await_task(
    api: ConnectApi, connector: Connector, *, timeout_s: float, slot_exists: Callable[[], bool] | None = None
) -> ConnectorStatus:
    """Wait until the task runs and the slot exists; raises ConditionNotMet with the reason when they do not."""
    deadline = time.monotonic() + timeout_s
    status = None
    failures = 0
    while time.monotonic() < deadline:
        status = _status_or_none(api, connector.name)
        if status is not None and status.runs and (slot_exists is None or slot_exists()):
            return status
        # Right after a change Connect may still report the failure of the configuration before it.
        failures = failures + 1 if status is not None and status.failed else 0
        if status is not None and failures >= 20:
            break
        time.sleep(_POLL_S)
    raise ConditionNotMet(_why_not(connector, status, timeout_s), hint=_hint(connector, status))


def _put(api: ConnectApi, name: str, config: Mapping[str, str], timeout_s: float) -> bool:
    """Connect answers 409 while its group rebalances, so trouble is tried again until time runs out."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return api.put_config(name, config)
        except DependencyDown:
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL_S * 5)


def _status_or_none(api: ConnectApi, name: str) -> ConnectorStatus | None:
    try:
        return api.status(name)
    except DependencyDown:
        return None


def _differences(before: Mapping[str, str], wanted: Mapping[str, str]) -> set[str]:
    # Connect adds the connector's name to what it was given.
    names = (before.keys() | wanted.keys()) - {"name"}
    return {name for name in names if before.get(name) != wanted.get(name)}


def _why_not(connector: Connector, status: ConnectorStatus | None, timeout_s: float) -> str:
    if status is None:
        return f"Kafka Connect does not show connector {connector.name} within {timeout_s:.0f} s"
    if status.failed:
        return f"task of connector {connector.name} failed: {status.failed[0].trouble}"
    if status.runs:
        return f"replication slot {connector.slot_name} did not appear within {timeout_s:.0f} s"
    states = ", ".join(task.state for task in status.tasks) or "no task"
    return f"connector {connector.name} is {status.state} with {states} after {timeout_s:.0f} s"


def _hint(connector: Connector, status: ConnectorStatus | None) -> str:
    trouble = " ".join(task.trouble for task in status.failed) if status is not None else ""
    if "publication" in trouble.lower():
        return "run `outbox migrate` first: it makes the publication, and the connector must not"
    if "no longer available" in trouble or "offset" in trouble.lower():
        return f"slot {connector.slot_name} is not the one this connector has read: see connectors/README.md, Lost slot"
    if "password" in trouble.lower() or "authentication" in trouble.lower():
        return "check the role and password in OUTBOX_CAPTURE_DATABASE_URL"
    return "look at the worker's log; `outbox connect status` shows the task"


def _database(url: str) -> dict[str, str]:
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in {"postgresql", "postgres"} or not parts.hostname or not parts.username:
        raise SettingsError(
            "OUTBOX_CAPTURE_DATABASE_URL is not postgresql://user:password@host:port/database",
            hint="host and database as the Connect worker reaches them, user with the capture role",
        )
    query = urllib.parse.parse_qs(parts.query)
    return {
        "database_host": parts.hostname,
        "database_port": str(parts.port or 5432),
        "database_user": urllib.parse.unquote(parts.username),
        "database_password": urllib.parse.unquote(parts.password or ""),
        "database_name": urllib.parse.unquote(parts.path.lstrip("/")) or urllib.parse.unquote(parts.username),
        "database_sslmode": query.get("sslmode", ["prefer"])[0],
    }
