"""Whether a Kafka consumer can receive anything, read from the client's own statistics. Pure.

Errors alone do not tell: the client reports that all brokers are down, and never that one is back.
"""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Vitals:
    """What the last statistics said; `trouble` is None when records can arrive."""

    trouble: str | None

    @classmethod
    def unknown(cls) -> Vitals:
        """Before the first statistics."""
        return cls("the Kafka client has not reported yet")


def read_vitals(text: str, topic: str) -> Vitals:
    """Read the statistics: a broker is up, the group is joined, the topic exists."""
    statistics = json.loads(text)
    brokers = [broker for broker in statistics.get("brokers", {}).values() if broker.get("nodeid", -1) >= 0]
    if not any(broker.get("state") == "UP" for broker in statistics.get("brokers", {}).values()):
        return Vitals("no Kafka broker is connected")
    if not any(broker.get("state") == "UP" for broker in brokers):
        return Vitals("the Kafka cluster has not answered yet")
    group = statistics.get("cgrp", {})
    if group.get("state") != "up":
        return Vitals(f"the consumer group's coordinator is not reached ({group.get('state', 'unknown')})")
    partitions = statistics.get("topics", {}).get(topic, {}).get("partitions", {})
    if not any(int(number) >= 0 for number in partitions) and not group.get("assignment_size"):
        return Vitals(f"topic {topic} does not exist, or no partition of it was assigned yet")
    return Vitals(None)
