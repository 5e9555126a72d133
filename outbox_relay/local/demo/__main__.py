"""`make demo`: start the real stack, tell the story, set the ledger against the provider's book, and clean up.

KEEP=1 leaves everything running until Ctrl-C; WAKEUPS=ledger runs without Kafka. Exits 1 when ledger and book disagree.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from outbox_relay.errors import OutboxError, UsageError
from outbox_relay.local.demo.stage import open_stage
from outbox_relay.local.demo.story import tell
from outbox_relay.local.demo.terminal import Terminal
from outbox_relay.local.demo.verdict import judge, write_report


def main() -> int:
    """Run the demonstration and return its exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    terminal = Terminal()
    build = Path("build")
    try:
        wakeups = _wakeups()
        with open_stage(build, kafka=wakeups == "kafka", terminal=terminal) as stage:
            told = tell(stage, terminal)
            verdict = judge(stage, told)
            report = write_report(build / "demo-report.json", verdict, stage, told)
            terminal.verdict(verdict, report)
            if os.environ.get("KEEP") == "1":
                _keep(terminal, stage.summary())
            return 0 if verdict.ok else 1
    except KeyboardInterrupt:
        terminal.complain("interrupted; everything that was started has been stopped", None)
        return 130
    except OutboxError as error:
        terminal.complain(str(error), error.hint)
        return error.exit_code


def _wakeups() -> str:
    wakeups = os.environ.get("WAKEUPS", "kafka")
    if wakeups not in {"kafka", "ledger"}:
        raise UsageError(f"WAKEUPS={wakeups} is not possible", hint="WAKEUPS=kafka or WAKEUPS=ledger")
    return wakeups


def _keep(terminal: Terminal, addresses: dict[str, str]) -> None:
    terminal.keep(addresses)
    signal.pause()


if __name__ == "__main__":
    sys.exit(main())
