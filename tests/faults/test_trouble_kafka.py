"""Lost slots, forgotten offsets, and slow HTTP beside the poll loop (cases O3, O6 and O14)."""

from __future__ import annotations

import json
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from outbox_relay.trial.faults import Fault
from outbox_relay.trial.processes import HttpProgram, Profile, wait_until
from outbox_relay.trial.scenario import KafkaPlace, Scenario
from tests.faults.troubles import SETTLE_S, keys, requests_per_key, series, wait_for
from tests.plugins.kafka import PARTITIONS, Pipeline, drop_slot
from tests.plugins.processes import SetStage

pytestmark = pytest.mark.timeout(300)  # several waits in a row, each of them long on a loaded machine

POLL_LIMIT_MS = 6_000
HANGING = Profile("hanging", deadline_s=8, lease_s=16, sweep_s=600, shortens_contracts=True)
"""A hang that is longer than the group allows a consumer to be away. After its start only Kafka wakes a relay."""
SWEEPING = Profile("sweeping", deadline_s=3, lease_s=6, sweep_s=1, shortens_contracts=True)
NO_SWEEP = Profile("no sweep", deadline_s=3, lease_s=6, sweep_s=600, shortens_contracts=True)
OLD_RECORDS = 10_000


def stage_of(scenario: SetStage, pipeline: Pipeline, profile: Profile, *providers: str) -> Scenario:
    return scenario(*providers, profile=profile, kafka=KafkaPlace(pipeline.bootstrap, pipeline.prefix))


def start_member(stage: Scenario, name: str, group: str, **options: int) -> HttpProgram:
    """A relay that has joined the group."""
    relay = stage.start_relay(name, OUTBOX_KAFKA_GROUP_ID=group, OUTBOX_KAFKA_OPTIONS=json.dumps(options))
    relay.wait_for("kafka_ready", timeout_s=SETTLE_S)
    return relay


def members_of(admin: AdminClient, group: str) -> dict[str, tuple[int, ...]]:
    """Who is in the group, and the partitions of each. A consumer that was away comes back under another id."""
    found = admin.describe_consumer_groups([group])[group].result(timeout=10)
    return {
        member.member_id: tuple(sorted(part.partition for part in member.assignment.topic_partitions))
        for member in found.members
    }


def settled_members(admin: AdminClient, group: str, count: int) -> dict[str, tuple[int, ...]]:
    """Wait until so many members share all partitions."""

    def shared() -> dict[str, tuple[int, ...]] | None:
        found = members_of(admin, group)
        parts = sorted(number for numbers in found.values() for number in numbers)
        return found if len(found) == count and parts == list(range(PARTITIONS)) else None

    return wait_until(shared, timeout_s=SETTLE_S, what=f"{count} members to share the topic", poll_s=0.2)


def gaps_beyond(relay: HttpProgram, limit_s: str) -> tuple[float, float]:
    """Of all gaps between two polls, how many were longer than a bound of the histogram; and how many there were."""
    seen = relay.metrics()
    total = seen["outbox_kafka_poll_gap_seconds_count"]
    return total - seen[f'outbox_kafka_poll_gap_seconds_bucket{{le="{limit_s}"}}'], total


def test_slow_http_stays_out_of_the_poll_loop_and_a_rebalance_sends_nothing_twice(
    scenario: SetStage, pipeline: Pipeline
) -> None:
    """O3: a provider hangs for longer than max.poll.interval.ms. Nobody leaves the group until one is told to."""
    stage = stage_of(scenario, pipeline, HANGING, "github", "resend")
    stage.providers["github"].spoil(Fault.ACCEPT_THEN_HANG, times=None)
    admin, group = AdminClient({"bootstrap.servers": pipeline.bootstrap}), f"group-{uuid4().hex[:8]}"
    limits = {"session.timeout.ms": POLL_LIMIT_MS, "max.poll.interval.ms": POLL_LIMIT_MS}
    relays = [start_member(stage, f"relay-{number}", group, **limits) for number in range(3)]
    before = settled_members(admin, group, 3)
    stage.add("github", keys("hanging", 20))
    stage.add("resend", keys("before", 80))
    wait_for(stage, 80, "delivery_confirmed", prefix="before/")
    wait_for(stage, 20, "delivery_unknown", prefix="hanging/")
    assert members_of(admin, group) == before, "nobody was taken for dead, so nothing was rebalanced"
    # Quiet machines stay below 1 s; this is the bound that no hang of a provider can hide under.
    gaps = [gaps_beyond(relay, "5.0") for relay in relays]
    assert all(beyond == 0 and total > 5 for beyond, total in gaps), gaps
    # One member leaves in the middle of the work: the group is rebalanced.
    stage.add("resend", keys("during", 50))
    assert relays[0].terminate(deadline_s=60) == 0
    stage.add("resend", keys("after", 50))
    wait_for(stage, 180, "delivery_confirmed")
    settled_members(admin, group, 2)
    assert len(stage.providers["resend"].book.requests()) == 180
    for place in stage.providers.values():
        assert set(place.book.effects_per_key().values()) == {1}
    assert len(stage.providers["resend"].book.effects()) + len(stage.providers["github"].book.effects()) == 200


def test_what_a_lost_slot_skips_is_sent_by_the_sweep(scenario: SetStage, pipeline: Pipeline) -> None:
    """O6: the slot is dropped and made anew later: the topic never hears of the hundred, the sweep does."""
    connector, server = pipeline.connector, pipeline.database.server
    stage = stage_of(scenario, pipeline, SWEEPING, "resend")
    relay = start_member(stage, "relay", f"group-{uuid4().hex[:8]}")
    pipeline.api.stop(connector.name)
    drop_slot(server, connector.slot_name)
    stage.add("resend", keys("skipped", 100))
    with psycopg.connect(pipeline.database.dsn("owner"), autocommit=True) as owner:
        owner.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [connector.slot_name])
    pipeline.api.resume(connector.name)
    wait_for(stage, 100, "delivery_confirmed")
    assert series(relay, "outbox_kafka_records_total", 'use="wakeup"') == 0, "no record of them had woken anybody"
    assert requests_per_key(stage.providers["resend"].book) == dict.fromkeys(keys("skipped", 100), 1)
    late = "a.first_attempt_at > a.created_at + interval '20 seconds'"
    assert stage.count(late) == 0, "two sweeps, and what a busy machine adds"


def test_a_group_without_offsets_reads_from_the_start_and_old_records_cost_no_request(
    scenario: SetStage, pipeline: Pipeline
) -> None:
    """O14: the client's default would start at the end. Reading everything again is harmless, not reading it is not."""
    stage = stage_of(scenario, pipeline, NO_SWEEP, "resend")
    admin, group = AdminClient({"bootstrap.servers": pipeline.bootstrap}), f"group-{uuid4().hex[:8]}"
    first = start_member(stage, "relay-1", group)
    stage.add("resend", ["first"])
    wait_for(stage, 1, "delivery_confirmed")
    assert first.terminate() == 0
    stage.add("resend", keys("while-away", 500))
    forget(admin, group)
    second = start_member(stage, "relay-2", group)
    wait_for(stage, 501, "delivery_confirmed")
    wait_until(lambda: read(second) >= 501, timeout_s=SETTLE_S, what="the whole topic to be read")
    assert second.terminate() == 0
    forget(admin, group)
    written = repeat_records(pipeline, OLD_RECORDS)
    third = start_member(stage, "relay-3", group)
    wait_until(lambda: read(third) >= written, timeout_s=SETTLE_S, what=f"{written} records to be read")
    stage.add("resend", ["last"])
    wait_for(stage, 502, "delivery_confirmed")
    sent = dict.fromkeys(["first", *keys("while-away", 500), "last"], 1)
    assert requests_per_key(stage.providers["resend"].book) == sent


def read(relay: HttpProgram) -> float:
    """Records that this process has read, of whatever kind."""
    return series(relay, "outbox_kafka_records_total")


def forget(admin: AdminClient, group: str) -> None:
    """Delete a group whose members have left, and its offsets with it."""
    wait_until(lambda: not members_of(admin, group), timeout_s=SETTLE_S, what="the group to be empty", poll_s=0.2)
    admin.delete_consumer_groups([group])[group].result(timeout=20)


def repeat_records(pipeline: Pipeline, at_least: int) -> int:
    """Write the topic's own records again until it holds so many; return how many it holds."""
    consumer = Consumer({"bootstrap.servers": pipeline.bootstrap, "group.id": f"reader-{uuid4().hex[:8]}"})
    producer = Producer({"bootstrap.servers": pipeline.bootstrap, "linger.ms": 5})
    parts = [TopicPartition(pipeline.topic, number, 0) for number in range(PARTITIONS)]
    held = sum(consumer.get_watermark_offsets(part, timeout=10)[1] for part in parts)
    consumer.assign(parts)
    records: list[Message] = []
    while len(records) < held:
        records += [record for record in consumer.consume(1000, timeout=0.5) if record.error() is None]
    consumer.close()
    total = len(records)
    while total < at_least:
        for record in records:
            producer.produce(pipeline.topic, record.value(), record.key(), headers=record.headers())
        producer.flush(30)
        total += len(records)
    return total
