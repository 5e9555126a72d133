"""The benchmark's arithmetic: promises are judged from medians, and a gap in the figures is never a good figure."""

from __future__ import annotations

import asyncio

import pytest

from bench.errand import BODY_BYTES, body_of, paced
from bench.ground import TrialFailed
from bench.latency import Quantiles, delays
from bench.provider import Seen, Wire
from bench.ratios import TARGETS, judged, ratios, spread

PROMISED = {
    "ledger_vs_limit",
    "ledger_vs_best_python_peer",
    "ledger_vs_river",
    "kafka_vs_ledger",
    "t50_vs_cap",
    "kafka_p50_vs_raw_cdc",
    "kafka_p99_vs_raw_cdc",
    "tx_per_action",
    "wal_vs_limit",
    "cpu_vs_limit",
    "grown_1m_vs_empty",
    "grown_10m_vs_empty",
    "snapshot_held_vs_free",
    "neighbour_p99_ratio",
}


def a_drain(system, rate, latency_ms=0, **others):
    return {"system": system, "latency_ms": latency_ms, "workers": 1, "actions_per_s": rate, **others}


def test_every_promised_ratio_is_in_the_report_even_when_nothing_was_measured():
    found = ratios([], [], {})
    assert set(found) >= PROMISED
    assert all(value is None for value in found.values())
    assert all(verdict["met"] is None for verdict in judged(found).values())


def test_a_ratio_is_that_of_medians_so_that_one_bad_round_decides_nothing():
    drains = [a_drain("ledger", rate) for rate in (900, 1, 800)] + [a_drain("limit", rate) for rate in (1000, 9e9, 10)]
    assert ratios(drains, [], {})["ledger_vs_limit"] == 0.8


def test_the_best_python_peer_is_the_fastest_one():
    drains = [a_drain("ledger", 900), a_drain("pgqueuer", 300), a_drain("dbos", 10)]
    assert ratios(drains, [], {})["ledger_vs_best_python_peer"] == 3


def test_the_cap_is_judged_from_the_slow_provider_alone():
    found = ratios([a_drain("ledger", 9_000), a_drain("ledger", 3_400, latency_ms=50)], [], {})
    assert found["t50_vs_cap"] == 0.85


def test_a_missed_target_is_told():
    verdicts = judged({**dict.fromkeys(TARGETS), "ledger_vs_limit": 0.79, "tx_per_action": 0.1})
    assert verdicts["ledger_vs_limit"]["met"] is False
    assert verdicts["tx_per_action"]["met"] is True


def test_a_figure_that_is_nested_is_found():
    latencies: list[dict[str, object]] = [
        {"system": "river", "arrival_ms": {"p50": 2.0}},
        {"system": "river", "arrival_ms": None},
    ]
    found = spread(latencies, "arrival_ms.p50", system="river")
    assert found is not None
    assert found.middle == 2.0


def test_an_action_that_never_arrived_fails_the_measurement():
    with pytest.raises(TrialFailed, match="1 of 2 never arrived"):
        delays({"a": 1.0, "b": 1.0}, {"a": 2.0})


def test_quantiles_are_of_values_that_were_seen():
    assert Quantiles.of([number / 1000 for number in range(1, 101)]) == Quantiles(50.0, 90.0, 99.0)
    with pytest.raises(TrialFailed):
        Quantiles.of([])


def test_every_system_sends_the_same_number_of_bytes():
    assert {len(body_of(key)) for key in ("k", "k-00000001", "warm-00000199")} == {BODY_BYTES}


async def test_a_paced_load_says_when_each_commit_returned():
    seen: list[str] = []

    async def enqueue(keys):
        seen.extend(keys)

    committed = await paced(enqueue, 1000, ["a", "b", "c"])
    assert seen == ["a", "b", "c"]
    assert committed["b"] - committed["a"] >= 0.0005


async def test_the_provider_counts_requests_and_keys_apart():
    loop, seen = asyncio.get_running_loop(), Seen()
    server = await loop.create_server(lambda: Wire(seen, loop), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    request = b"POST /messages HTTP/1.1\r\nIdempotency-Key: k-1\r\nContent-Length: 2\r\n\r\n{}"
    writer.write(request[:30])
    await writer.drain()
    writer.write(request[30:] + request)
    answers = await reader.readuntil(b'000002"}')
    writer.close()
    server.close()
    assert answers.count(b"HTTP/1.1 200 OK") == 2
    assert (seen.requests, list(seen.arrivals)) == (2, ["k-1"])
