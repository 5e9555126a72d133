"""Fetches exactly the jars of a lock in connectors/ from Maven Central, each checked against its sha256.

The lock, not the downloader, decides versions: jgo resolves some transitive ones differently from Maven, so it is
asked for one artifact at a time. A jar whose checksum differs is deleted and never put on a class path.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from outbox_relay.errors import DependencyDown, InvariantBroken
from outbox_relay.local.cache import locked
from outbox_relay.resources import resource

Progress = Callable[[str], None]

_PARALLEL = 6
_TIMEOUT_S = 60
_STEPS = 5
"""How many times progress is reported during a download."""


@dataclass(frozen=True, slots=True)
class Jar:
    """One line of the lock."""

    group: str
    artifact: str
    version: str
    size: int
    sha256: str

    @property
    def path(self) -> Path:
        """Where it lies in a Maven repository."""
        return Path(*self.group.split("."), self.artifact, self.version, f"{self.artifact}-{self.version}.jar")


def locked_jars(lock: str = "jars.lock") -> list[Jar]:
    """All jars of the lock, in its order, which is the class path's."""
    jars = []
    for line in resource("connectors", lock).read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            coordinate, size, sha256 = line.split()
            group, artifact, version = coordinate.split(":")
            jars.append(Jar(group, artifact, version, int(size), sha256))
    return jars


def version_of(artifact: str) -> str:
    """The locked version of an artifact, such as kafka_2.13."""
    for jar in locked_jars():
        if jar.artifact == artifact:
            return jar.version
    raise InvariantBroken(f"{artifact} is not in jars.lock")


def class_path(progress: Progress) -> str:
    """Fetch what is missing (about 60 MB the first time) and return the class path of broker and Connect."""
    jars = locked_jars()
    return os.pathsep.join(map(str, fetched(jars, f"{len(jars)} jars of Kafka and Debezium", progress)))


def fetched(jars: Sequence[Jar], what: str, progress: Progress) -> list[Path]:
    """The files of these jars, downloaded where they are missing; `what` names them to whoever waits."""
    with locked("jars") as repository:
        missing = [jar for jar in jars if not _is_good(repository / jar.path, jar)]
        missing = [jar for jar in missing if not _copied(repository, jar)]
        if missing:
            _fetch(missing, repository, what, progress)
        return [repository / jar.path for jar in jars]


def _is_good(path: Path, jar: Jar) -> bool:
    if not path.is_file() or path.stat().st_size != jar.size:
        return False
    return hashlib.sha256(path.read_bytes()).hexdigest() == jar.sha256


def _copied(repository: Path, jar: Jar) -> bool:
    """Take the jar from this user's Maven repository when it is there, and right."""
    source = Path(os.environ.get("M2_REPO") or Path.home() / ".m2" / "repository") / jar.path
    if not _is_good(source, jar):
        return False
    target = repository / jar.path
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    return _is_good(target, jar)


def _fetch(jars: Sequence[Jar], repository: Path, what: str, progress: Progress) -> None:
    total = sum(jar.size for jar in jars)
    progress(f"downloading {what}, {total / 1e6:.0f} MB, once")
    done, next_report = 0, total / _STEPS
    with ThreadPoolExecutor(_PARALLEL) as pool:
        futures = {pool.submit(_fetch_one, jar, repository): jar for jar in jars}
        try:
            for future in as_completed(futures):
                future.result()
                done += futures[future].size
                if done >= next_report:
                    progress(f"{done / 1e6:.0f} of {total / 1e6:.0f} MB")
                    next_report += total / _STEPS
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _fetch_one(jar: Jar, repository: Path) -> None:
    target = repository / jar.path
    target.unlink(missing_ok=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        _download(jar, repository)
    except Exception as error:
        target.unlink(missing_ok=True)
        raise DependencyDown(
            f"{jar.group}:{jar.artifact}:{jar.version} could not be downloaded: {type(error).__name__}",
            hint="check the connection to Maven Central; what was downloaded is kept, run the same command again",
        ) from error
    if not _is_good(target, jar):
        target.unlink(missing_ok=True)
        raise DependencyDown(
            f"{jar.group}:{jar.artifact}:{jar.version} is not the file that the lock names; it was deleted",
            hint="try again; when it happens again, something between here and Maven Central changes files",
        )


def _download(jar: Jar, repository: Path) -> None:
    from jgo.maven import MavenContext  # slow to import, and needed only when something is missing

    logging.getLogger("jgo").setLevel(logging.ERROR)
    context = MavenContext(repo_cache=repository, local_repos=[], timeout=_TIMEOUT_S)
    context.project(jar.group, jar.artifact).at_version(jar.version).artifact().resolve()
