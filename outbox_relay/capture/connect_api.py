"""Kafka Connect's REST interface, the few calls that are needed.

Answers of Connect can repeat a connector's configuration, password included: an error shows the part of an answer that
explains it, never a configuration.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

from outbox_relay.errors import DependencyDown, NotFound, Refused, SettingsError

_TIMEOUT_S = 30.0
_ANSWER_MAX_BYTES = 4_194_304
_SUMMARY_MAX = 600


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """One task of a connector; `trouble` is the summary of its trace when it failed."""

    number: int
    state: str
    trouble: str


@dataclass(frozen=True, slots=True)
class ConnectorStatus:
    """What Connect says of a connector. The tasks do the work: a RUNNING connector with a FAILED task does nothing."""

    name: str
    state: str
    tasks: tuple[TaskStatus, ...]

    @property
    def runs(self) -> bool:
        """True when the connector and all of its tasks run, and it has one."""
        return self.state == "RUNNING" and bool(self.tasks) and all(task.state == "RUNNING" for task in self.tasks)

    @property
    def failed(self) -> tuple[TaskStatus, ...]:
        """The tasks that failed and stay failed until somebody restarts them."""
        return tuple(task for task in self.tasks if task.state == "FAILED")


class ConnectApi:
    """A client for one Connect cluster. Blocking; call it from a thread in asyncio programs."""

    def __init__(self, url: str) -> None:
        if urllib.parse.urlsplit(url).scheme not in {"http", "https"}:
            raise SettingsError(
                "OUTBOX_CONNECT_URL is not an http or https address", hint="such as http://connect:8083"
            )
        self.url = url.rstrip("/")
        # Proxies of the environment are for the outside world, not for the Connect worker next door.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def put_config(self, name: str, config: Mapping[str, str]) -> bool:
        """Create or update; True when it was created. Idempotent."""
        secrets = [value for key, value in config.items() if "password" in key and value]
        status, _ = self._call("PUT", f"/connectors/{_quoted(name)}/config", dict(config), secrets=secrets)
        return status == HTTPStatus.CREATED

    def config(self, name: str) -> dict[str, str] | None:
        """The connector's configuration; None when there is no such connector."""
        try:
            _, answer = self._call("GET", f"/connectors/{_quoted(name)}/config")
        except NotFound:
            return None
        return {str(key): str(value) for key, value in answer.items()} if isinstance(answer, dict) else {}

    def status(self, name: str) -> ConnectorStatus | None:
        """The connector's and its tasks' states; None when there is no such connector, or not yet."""
        try:
            _, answer = self._call("GET", f"/connectors/{_quoted(name)}/status")
        except NotFound:
            return None
        return _read_status(name, answer)

    def restart_failed(self, name: str) -> None:
        """Restart the connector and its tasks where they failed, and nothing else."""
        self._call("POST", f"/connectors/{_quoted(name)}/restart?includeTasks=true&onlyFailed=true")

    def stop(self, name: str) -> None:
        """Stop it and keep its configuration and offsets."""
        self._call("PUT", f"/connectors/{_quoted(name)}/stop")

    def resume(self, name: str) -> None:
        """Start it again after `stop`."""
        self._call("PUT", f"/connectors/{_quoted(name)}/resume")

    def forget_offsets(self, name: str) -> None:
        """Forget how far a stopped connector has read; needed after its slot was lost."""
        self._call("DELETE", f"/connectors/{_quoted(name)}/offsets")

    def delete(self, name: str) -> bool:
        """Remove the connector; False when there was none. Its offsets and its slot stay."""
        try:
            self._call("DELETE", f"/connectors/{_quoted(name)}")
        except NotFound:
            return False
        return True

    def _call(
        self, method: str, path: str, body: Mapping[str, str] | None = None, *, secrets: list[str] | None = None
    ) -> tuple[int, object]:
        request = urllib.request.Request(  # noqa: S310 - the scheme is checked when the client is made
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", "Accept": "application/json"},
        )
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as answer:
                text = answer.read(_ANSWER_MAX_BYTES)
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            raise _refusal(error, method, path, secrets or []) from None
        except (OSError, ValueError) as error:
            raise DependencyDown(
                f"Kafka Connect does not answer at {self.url}: {type(error).__name__}",
                hint="check OUTBOX_CONNECT_URL and that the worker runs",
            ) from error


def summary(trace: str) -> str:
    """The exceptions of a Java stack trace, outermost first, without the frames."""
    lines = [line.strip() for line in trace.splitlines()]
    kept = [line for line in lines if line and not line.startswith(("at ", "..."))]
    return " | ".join(kept)[:_SUMMARY_MAX]


def _quoted(name: str) -> str:
    return urllib.parse.quote(name, safe="")


def _refusal(error: urllib.error.HTTPError, method: str, path: str, secrets: list[str]) -> Exception:
    text = error.read(_ANSWER_MAX_BYTES).decode(errors="replace")
    try:
        text = str(json.loads(text).get("message", ""))
    except (ValueError, AttributeError):
        text = ""
    for secret in secrets:
        text = text.replace(secret, "***")
    if error.code == HTTPStatus.NOT_FOUND:
        return NotFound(f"Kafka Connect knows nothing at {path}")
    if error.code in {HTTPStatus.CONFLICT, HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.SERVICE_UNAVAILABLE}:
        return DependencyDown(f"Kafka Connect answered {error.code} to {method} {path}: {text[:_SUMMARY_MAX]}")
    return Refused(f"Kafka Connect refused {method} {path}: {text[:_SUMMARY_MAX]}")


def _read_status(name: str, answer: object) -> ConnectorStatus:
    if not isinstance(answer, dict):
        raise DependencyDown("Kafka Connect answered with something that is not a connector's status")
    tasks = tuple(
        TaskStatus(int(task.get("id", 0)), str(task.get("state", "")), summary(str(task.get("trace", ""))))
        for task in answer.get("tasks", [])
    )
    return ConnectorStatus(name, str(answer.get("connector", {}).get("state", "")), tasks)
