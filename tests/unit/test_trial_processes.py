"""Programs are watched, frozen and ended from outside, and never outlive their supervisor."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from outbox_relay.errors import ConditionNotMet
from outbox_relay.trial.processes import Program, wait_for_none_left, wait_until

COUNTS = """
import itertools, time
for n in itertools.count():
    print('{"event": "beat", "n": %d}' % n, flush=True)
    time.sleep(0.02)
"""
SUPERVISES = """
import sys, time
from pathlib import Path
from outbox_relay.trial.processes import Program
program = Program("child", [sys.executable, "-c", "import time; time.sleep(60)"], {}, Path(sys.argv[1]))
print('{"event": "started", "pid": %d}' % program.pid, flush=True)
time.sleep(60)
"""
DEAF = f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{COUNTS}"


def start(code: str, folder: Path, name: str = "program") -> Program:
    return Program(name, [sys.executable, "-u", "-c", code], {}, folder)


def test_a_frozen_program_says_nothing_until_it_is_thawed(tmp_path: Path) -> None:
    with start(COUNTS, tmp_path) as program:
        program.wait_for("beat", count=3)
        program.freeze()
        seen = len(program.events("beat"))
        assert len(program.events("beat")) == seen
        program.thaw()
        program.wait_for("beat", count=seen + 3)
        assert program.terminate() == -signal.SIGTERM


def test_a_program_that_ignores_sigterm_is_killed_and_named(tmp_path: Path) -> None:
    with start(DEAF, tmp_path, "deaf") as program:
        program.wait_for("beat")
        with pytest.raises(ConditionNotMet, match="deaf did not stop"):
            program.terminate(deadline_s=0.3)
        assert program.exit_code == -signal.SIGKILL


def test_waiting_for_a_program_that_ended_fails_at_once_with_its_log(tmp_path: Path) -> None:
    with (
        start("raise SystemExit('no settings')", tmp_path) as program,
        pytest.raises(ConditionNotMet, match="no settings"),
    ):
        program.wait_for("listening", timeout_s=30)


def test_waiting_for_many_lines_goes_on_as_long_as_they_come(tmp_path: Path) -> None:
    slow = COUNTS.replace("0.02", "0.3")
    with start(slow, tmp_path) as program:
        program.wait_for("beat")
        assert program.wait_for("beat", count=8, timeout_s=1.5)["n"] == 7
        program.freeze()
        with pytest.raises(ConditionNotMet, match="1000 x beat"):
            program.wait_for("beat", count=1000, timeout_s=0.3)


def test_a_program_does_not_outlive_a_killed_supervisor(tmp_path: Path) -> None:
    root = str(Path(__file__).resolve().parents[2])
    supervisor = Program(
        "supervisor", [sys.executable, "-u", "-c", SUPERVISES, str(tmp_path)], {"PYTHONPATH": root}, tmp_path
    )
    with supervisor:
        pid = int(str(supervisor.wait_for("started")["pid"]))
        assert psutil.pid_exists(pid)
        supervisor.kill()
        wait_until(lambda: not psutil.pid_exists(pid), timeout_s=20, what="the child to be ended")


def test_the_provider_says_which_contracts_there_are() -> None:
    command = [sys.executable, "-m", "outbox_relay.trial.provider", "--contract", "nobody", "--book", "unused"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "resend" in done.stderr) == (2, True)


def test_a_wait_for_many_lasts_while_they_become_fewer() -> None:
    left = itertools.chain(range(30, 0, -1), itertools.repeat(0))
    wait_for_none_left(lambda: pace(next(left)), patience_s=0.2, what="all to be done", poll_s=0)


def test_a_wait_for_many_ends_at_a_standstill_and_says_how_many_are_left() -> None:
    left = itertools.chain((5, 4), itertools.repeat(3))
    with pytest.raises(ConditionNotMet, match="all to be done; 3 are left"):
        wait_for_none_left(lambda: next(left), patience_s=0.1, what="all to be done", poll_s=0.01)


def test_a_count_that_only_flutters_is_no_progress() -> None:
    left = itertools.cycle((2, 1, 3))
    with pytest.raises(ConditionNotMet):
        wait_for_none_left(lambda: next(left), patience_s=0.1, what="all to be done", poll_s=0.01)


def pace(left: int) -> int:
    time.sleep(0.02)
    return left
