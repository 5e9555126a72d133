"""Fail a CI run in which a test was skipped that the committed list does not name.

A suite that skips what it cannot run looks green and shows nothing. `tests/allowed-skips.txt` names what may be skipped
and why; everything else must run, or CI is red. Outside CI a skip is only reported, as pytest does.
"""

from __future__ import annotations

import os
from fnmatch import fnmatch
from pathlib import Path

import pytest

ALLOWED = Path(__file__).resolve().parent.parent / "allowed-skips.txt"
SURPLUS = pytest.StashKey[list[str]]()


def allowed_patterns(text: str) -> list[str]:
    """Read patterns of test ids, one a line; each is followed by its reason after a number sign."""
    patterns = []
    for number, line in enumerate(text.splitlines(), start=1):
        pattern, _, reason = (part.strip() for part in line.partition("#"))
        if pattern and not reason:
            raise pytest.UsageError(f"{ALLOWED.name}:{number}: say why {pattern} may be skipped, after a #")
        if pattern:
            patterns.append(pattern)
    return patterns


def pytest_configure(config: pytest.Config) -> None:
    """Start with no surplus skip."""
    config.stash[SURPLUS] = []
    config.pluginmanager.register(Watch(config, allowed_patterns(ALLOWED.read_text(encoding="utf-8"))), "skip-watch")


class Watch:
    """Collects the skips that nobody allowed."""

    def __init__(self, config: pytest.Config, patterns: list[str]) -> None:
        self.surplus = config.stash[SURPLUS]
        self.patterns = patterns

    def note(self, nodeid: str) -> None:
        """Remember one skip, unless the list names it."""
        if not any(fnmatch(nodeid, pattern.replace("[", "[[]")) for pattern in self.patterns):
            self.surplus.append(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """See one test's end; an expected failure is not a skip."""
        if report.skipped and not hasattr(report, "wasxfail"):
            self.note(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """See a whole module skip itself."""
        if report.skipped:
            self.note(report.nodeid)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Turn a green run red when it skipped what it should have run."""
    if session.config.stash[SURPLUS] and os.environ.get("CI") and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name every surplus skip."""
    surplus = config.stash[SURPLUS]
    if surplus and os.environ.get("CI"):
        terminalreporter.section("skipped without leave", red=True, bold=True)
        for nodeid in surplus:
            terminalreporter.line(nodeid)
        terminalreporter.line("run them, or name them with a reason in tests/allowed-skips.txt")
