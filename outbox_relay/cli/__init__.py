"""`outbox`, the command for people: data on stdout, talk on stderr, one exit code per kind of outcome.

Commands compose what the other packages do; they decide nothing themselves.

Exit codes: 0 done, 1 a bug, 2 wrong usage or setting, 3 no such thing, 4 refused and nothing changed,
5 PostgreSQL, Kafka or Connect is down, 6 a condition that was checked or waited for does not hold.
"""

from __future__ import annotations

import sys

import typer

from outbox_relay.cli import actions, audit, connect, doctor, ledger, reviews
from outbox_relay.cli.output import Format, complain, set_format
from outbox_relay.errors import OutboxError

app = typer.Typer(
    name="outbox",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="The ledger of actions on the outside world: install it, look into it, and see what awaits a person.",
    epilog="Exit codes: 0 done, 1 bug, 2 usage, 3 not found, 4 refused, 5 dependency down, 6 condition not met. "
    "Settings are OUTBOX_ variables: docs/operating.md.",
)
app.command("migrate")(ledger.migrate_command)
app.add_typer(ledger.providers, name="providers")
app.add_typer(connect.app, name="connect")
app.add_typer(actions.app, name="actions")
app.add_typer(reviews.app, name="reviews")
app.command("audit")(audit.audit_command)
app.command("doctor")(doctor.doctor_command)


@app.callback()
def _global(
    output: Format = typer.Option(Format.TABLE, "--output", "-o", help="table for people, json for programs."),
) -> None:
    set_format(output)


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        app()
    except OutboxError as error:
        complain(str(error), error.hint)
        sys.exit(error.exit_code)
