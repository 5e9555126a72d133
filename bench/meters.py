"""What a measurement costs: CPU, WAL, transactions, row versions, memory. Reads counters; judges nothing."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import Self

import psutil
import psycopg


@dataclass(frozen=True, slots=True)
class Reading:
    """Counters at one moment; the difference of two is what happened between them."""

    worker_cpu_s: float = 0.0
    postgres_cpu_s: float = 0.0
    wal_bytes: float = 0.0
    transactions: float = 0.0
    row_versions: float = 0.0

    def __sub__(self, before: Self) -> Reading:
        """What happened since `before`."""
        return Reading(
            **{field.name: getattr(self, field.name) - getattr(before, field.name) for field in fields(self)}
        )


def cpu_s(process: psutil.Process) -> float:
    """User and system seconds of a process, the children it has reaped, and those that live."""
    total = 0.0
    for one in (process, *_descendants(process)):
        try:
            times = one.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def rss_bytes(process: psutil.Process) -> int:
    """Resident memory of a process and its children."""
    return sum(int(one.memory_info().rss) for one in (process, *_descendants(process)))


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    try:
        return list(process.children(recursive=True))
    except psutil.NoSuchProcess:
        return []


class Meters:
    """Reads the counters of one database and its processes. Counts its own transactions and leaves them out."""

    def __init__(self, dsn: str, postmaster: psutil.Process) -> None:
        self._connection = psycopg.connect(dsn, autocommit=True)
        self._postmaster = postmaster
        self._asked = 0

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def ask(self, statement: str) -> list[tuple[object, ...]]:
        """Run one statement of the harness."""
        self._asked += 1
        return self._connection.execute(statement.encode()).fetchall()

    def number(self, statement: str) -> float:
        """The single number that a statement returns."""
        return float(str(self.ask(statement)[0][0]))

    def read(self, worker: psutil.Process | None = None) -> Reading:
        """The counters now. Transactions and row versions are exact once the sessions that made them have ended."""
        self._asked += 1
        row = self._connection.execute(
            "select pg_current_wal_insert_lsn() - '0/0',"
            " (select xact_commit from pg_stat_database where datname = current_database()),"
            " (select coalesce(sum(n_tup_ins + n_tup_upd), 0) from pg_stat_user_tables)"
        ).fetchone() or (0, 0, 0)
        return Reading(
            worker_cpu_s=cpu_s(worker) if worker is not None else 0.0,
            postgres_cpu_s=cpu_s(self._postmaster),
            wal_bytes=float(row[0]),
            transactions=float(row[1]) - self._asked,
            row_versions=float(row[2]),
        )


def load_average() -> float:
    """The one-minute load average."""
    return round(os.getloadavg()[0], 2)
