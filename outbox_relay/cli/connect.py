"""`outbox connect`: the topic and the connector that carry changes from the ledger to Kafka."""

from __future__ import annotations

import typer

from outbox_relay.capture.connect_api import ConnectApi, ConnectorStatus
from outbox_relay.capture.connector import Connector, apply, recover, redacted, render
from outbox_relay.capture.topic import ensure_topics
from outbox_relay.cli.output import say, show_json, show_rows, wants_json
from outbox_relay.errors import ConditionNotMet, NotFound
from outbox_relay.settings import Settings, load_settings

app = typer.Typer(no_args_is_help=True, help="The status topic and the Debezium connector.")


def _connector(settings: Settings) -> Connector:
    return Connector(
        name=settings.connector_name,
        slot_name=settings.slot_name,
        topic_prefix=settings.topic_prefix,
        database_url=settings.capture_dsn(),
    )


@app.command("apply")
def apply_command(
    timeout_s: float = typer.Option(60.0, help="How long to wait for the connector's task to run."),
    print_only: bool = typer.Option(False, "--print", help="Print the connector's configuration and do nothing."),
) -> None:
    """Make the topic, create or update the connector, and wait until its task runs. Safe to repeat."""
    settings = load_settings()
    connector = _connector(settings)
    if print_only:
        show_json(redacted(render(connector)))
        return
    made = ensure_topics(
        connector.topics,
        bootstrap_servers=settings.needed_bootstrap_servers(),
        partitions=settings.topic_partitions,
        replication=settings.topic_replication,
        retention_days=settings.topic_retention_days,
        options=settings.kafka_options,
    )
    done = apply(ConnectApi(settings.needed_connect_url()), connector, timeout_s=timeout_s)
    if wants_json():
        show_json({"topics_made": made, "created": done.created, "changed": done.changed, "status": done.status})
        return
    for name in made:
        say(f"made topic {name}")
    verb = "created" if done.created else ("updated" if done.changed else "unchanged")
    say(f"connector {connector.name}: {verb}, its task runs")


@app.command("recover")
def recover_command(
    yes: bool = typer.Option(False, "--yes", help="Do it; without it only say what would happen."),
    timeout_s: float = typer.Option(60.0, help="How long to wait for the connector's task to run."),
) -> None:
    """After the slot was lost: make a new one and send every retained event again, under its old id.

    Nothing is sent to a provider by this. Consumers that deduplicate by ce_id see each event once.
    """
    settings = load_settings()
    connector = _connector(settings)
    if not yes:
        raise ConditionNotMet(
            f"connector {connector.name} would forget its position, make slot {connector.slot_name} anew "
            "and send every retained event again",
            hint="add --yes to do it; outbox connect apply is enough when only the task failed",
        )
    status = recover(ConnectApi(settings.needed_connect_url()), connector, timeout_s=timeout_s)
    if wants_json():
        show_json(status)
    else:
        say(f"connector {status.name}: recovered, its task runs")


@app.command("status")
def status_command() -> None:
    """Show connector and task; exit 6 unless both run."""
    settings = load_settings()
    status = ConnectApi(settings.needed_connect_url()).status(settings.connector_name)
    if status is None:
        raise NotFound(f"there is no connector {settings.connector_name!r}", hint="run: outbox connect apply")
    _show(status)
    if not status.runs:
        raise ConditionNotMet(
            f"connector {status.name} does not run",
            hint="run: outbox connect apply, which restarts a failed task; outbox doctor looks at the slot",
        )


def _show(status: ConnectorStatus) -> None:
    rows = [
        {"part": "connector", "name": status.name, "state": status.state, "trouble": None},
        *(
            {
                "part": "task",
                "name": f"{status.name}/{task.number}",
                "state": task.state,
                "trouble": task.trouble or None,
            }
            for task in status.tasks
        ),
    ]
    show_rows(rows, ("part", "name", "state", "trouble"), empty="nothing")
