"""What the connector is told: rendered from the template, with nothing secret shown and nothing left out."""

from __future__ import annotations

import json

import pytest

from outbox_relay.capture.connect_api import ConnectApi, summary
from outbox_relay.capture.connector import Connector, redacted, render
from outbox_relay.capture.topic import Topics
from outbox_relay.errors import SettingsError
from outbox_relay.resources import resource

URL = "postgresql://capture:pa%22ss%24%7Bx%7D@db.example:6432/shop?sslmode=verify-full"


def connector(url: str = URL) -> Connector:
    return Connector(name="outbox", slot_name="outbox", topic_prefix="acme.outbox", database_url=url)


def test_every_placeholder_of_the_template_is_filled() -> None:
    assert not [value for name, value in render(connector()).items() if "${" in value and "password" not in name]


def test_a_password_with_quotes_and_dollars_arrives_as_it_is() -> None:
    assert render(connector())["database.password"] == 'pa"ss${x}'


def test_the_database_is_what_the_url_says() -> None:
    config = render(connector())
    assert config["database.hostname"] == "db.example"
    assert config["database.port"] == "6432"
    assert config["database.dbname"] == "shop"
    assert config["database.sslmode"] == "verify-full"


def test_records_go_to_the_status_topic_and_heartbeats_past_the_transforms() -> None:
    config = render(connector())
    assert config["transforms.outbox.route.topic.replacement"] == "acme.outbox.delivery-status.v1"
    heartbeat = f"{config['topic.heartbeat.prefix']}.{config['topic.prefix']}"
    assert heartbeat == Topics("acme.outbox", "outbox").heartbeat
    assert config["predicates.heartbeat.pattern"] == r"acme\.outbox\.heartbeat\.outbox"
    for transform in config["transforms"].split(","):
        assert config[f"transforms.{transform}.predicate"] == "heartbeat"
        assert config[f"transforms.{transform}.negate"] == "true"


def test_a_hidden_password_is_hidden_and_a_reference_is_shown() -> None:
    assert redacted(render(connector()))["database.password"] == "********"
    reference = connector("postgresql://capture:%24%7Benv%3ACAPTURE%7D@db/shop")
    assert redacted(render(reference))["database.password"] == "${env:CAPTURE}"


def test_the_database_url_is_not_in_the_connectors_repr() -> None:
    assert "pa" not in repr(connector()).replace("capture", "")


def test_extra_settings_win() -> None:
    config = render(Connector("outbox", "outbox", "outbox", URL, extra={"poll.interval.ms": "50"}))
    assert config["poll.interval.ms"] == "50"


@pytest.mark.parametrize("url", ["", "mysql://a@b/c", "postgresql:///shop", "postgresql://db/shop"])
def test_an_unusable_database_url_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(SettingsError) as raised:
        render(connector(url))
    assert "OUTBOX_CAPTURE_DATABASE_URL" in str(raised.value)


def test_an_unusable_connect_url_is_refused() -> None:
    with pytest.raises(SettingsError):
        ConnectApi("file:///etc/passwd")


def test_every_setting_of_the_template_is_explained() -> None:
    text = resource("connectors", "README.md").read_text(encoding="utf-8")
    template = json.loads(resource("connectors", "outbox-connector.json").read_text(encoding="utf-8"))
    assert [name for name in template if f"`{name}`" not in text] == []


def test_a_stack_trace_is_reduced_to_its_exceptions() -> None:
    trace = "org.x.ConnectException: bad\n\tat org.x.A.b(A.java:1)\n\t... 8 more\nCaused by: org.y.Cause: slot gone\n"
    assert summary(trace) == "org.x.ConnectException: bad | Caused by: org.y.Cause: slot gone"
