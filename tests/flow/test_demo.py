"""`make demo` as somebody new runs it: it tells the truth, ends by itself, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from outbox_relay.trial.processes import wait_until

REPORT_KEYS = {
    "actions_created",
    "provider_requests",
    "provider_effects",
    "duplicates",
    "lost",
    "states",
    "seconds_to_first_acceptance",
    "versions",
    "ok",
}


@contextmanager
def demo(folder: Path, **environ: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "outbox_relay.local.demo"]
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(60)
        if process.stdout is not None:
            process.stdout.close()


def started_below(process: subprocess.Popen[str]) -> list[psutil.Process]:
    children: list[psutil.Process] = psutil.Process(process.pid).children(recursive=True)
    return children


@pytest.mark.timeout(300)
@pytest.mark.parametrize("wakeups", ["ledger", "kafka"])
def test_the_demo_ends_by_itself_and_ledger_and_book_agree(tmp_path: Path, wakeups: str) -> None:
    with demo(tmp_path, WAKEUPS=wakeups) as process:
        told, _ = process.communicate(timeout=280)
    assert process.returncode == 0, told
    report = json.loads((tmp_path / "build" / "demo-report.json").read_text())
    assert report.keys() >= REPORT_KEYS
    assert report["ok"] is True
    assert (report["actions_created"], report["provider_effects"]) == (5, 5)
    assert (report["duplicates"], report["lost"]) == (0, 0)
    assert report["states"] == {"delivery_confirmed": 2, "reconciled_confirmed": 3}
    assert report["records_read"] > report["actions_created"]
    for words in ("ROLLBACK", "OB001", "SIGKILL", "delivery_unknown", "they agree"):
        assert words in told


@pytest.mark.timeout(180)
def test_ctrl_c_ends_everything_that_the_demo_started(tmp_path: Path) -> None:
    with demo(tmp_path, WAKEUPS="ledger") as process:
        wait_until(lambda: len(started_below(process)) > 5, timeout_s=90, what="programs to run")
        children = started_below(process)
        process.send_signal(signal.SIGINT)
        told, _ = process.communicate(timeout=60)
    assert process.returncode == 130, told
    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []


def test_an_unknown_way_of_waking_is_refused_with_what_is_possible(tmp_path: Path) -> None:
    with demo(tmp_path, WAKEUPS="pigeon") as process:
        told, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "WAKEUPS=kafka or WAKEUPS=ledger" in told
