"""`python -m outbox_relay.local up`: the real stack on this machine until it is stopped, addresses as JSON.

Progress goes to standard error, the one JSON line to standard output, so that scripts can read it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from outbox_relay.errors import OutboxError
from outbox_relay.local.stack import Stack


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 when it was stopped on purpose."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        _up(options)
    except KeyboardInterrupt:
        return 130
    except OutboxError as error:
        print(f"error: {error}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return error.exit_code
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m outbox_relay.local", description=__doc__)
    commands = parser.add_subparsers(required=True)
    up = commands.add_parser("up", help="start the stack and stay until stopped")
    up.add_argument("--postgres-only", "--without-kafka", action="store_true", help="PostgreSQL alone")
    up.add_argument("--fast", action="store_true", help="no fsync: for tests")
    up.add_argument("--build", type=Path, default=Path("build"), help="where data and logs go (default: build)")
    return parser


def _up(options: argparse.Namespace) -> None:
    with Stack(options.build, durable=not options.fast, progress=_say) as stack:
        _say(f"data in {stack.directory}, logs in {stack.logs}")
        addresses = stack.start(kafka=not options.postgres_only)
        try:
            print(json.dumps(dataclasses.asdict(addresses)), flush=True)
            threading.Event().wait()
        except KeyboardInterrupt:
            _say("stopping; the first time this takes some seconds more, to make later starts fast")


def _interrupt(*_: object) -> None:
    """SIGTERM ends it as Ctrl-C does, wherever it is."""
    raise KeyboardInterrupt


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
