"""A drill that cannot fail proves nothing: every planted bug is caught, and without one nothing fails.

The fast part of what `make drill` does: here by the tests that start no programs, and by three that do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from threading import Lock

import pytest

from outbox_relay.trial.planted import Catch, PlantedBug, Servers, catch, failures_unplanted, read_bugs
from tests.plugins.postgres import PostgresServer

pytestmark = pytest.mark.timeout(300)  # all of them share one pool, and the first one asked for may be its last

ROOT = Path(__file__).resolve().parents[2]
SEED = 42
SIDE_BY_SIDE = 2
MIGRATING = Lock()
BUGS = {bug.name: bug for bug in read_bugs(ROOT / "tests/faults/planted")}
QUICK = [name for name, bug in BUGS.items() if bug.quick]
WITH_PROGRAMS = [
    "lease ends by the relay's own clock",
    "claims go on while outcomes cannot be stored",
    "outcome is dropped when the ledger is away",
]


@pytest.fixture(scope="module")
def servers(postgres_server: PostgresServer) -> Servers:
    """The server of this session: the run in the copy makes databases of its own."""
    return Servers(postgres_server.dsn())


@pytest.fixture(scope="module")
def catches(request: pytest.FixtureRequest, servers: Servers) -> Iterator[Mapping[str, Future[Catch]]]:
    """The selected bugs, each in a copy and a process of its own, two at a time."""
    # In the order of their tests: none waits for more than its own and what was seen before.
    wanted = [name for item in request.session.items for name in QUICK if _is_quick(item, name)]
    with ThreadPoolExecutor(SIDE_BY_SIDE, thread_name_prefix="plant") as pool:
        yield {name: pool.submit(_seen, BUGS[name], servers) for name in wanted}
        pool.shutdown(cancel_futures=True)


def _seen(bug: PlantedBug, servers: Servers) -> Catch:
    # Two migrations at a time would both make the roles, which belong to the whole server.
    with MIGRATING if str(bug.quick).startswith("tests/ledger/") else nullcontext():
        return catch(bug, ROOT, servers, seed=SEED, by=bug.quick)


def _is_quick(item: pytest.Item, name: str) -> bool:
    return item.name == f"{test_a_planted_bug_is_seen_without_starting_a_program.__name__}[{name}]"


@pytest.mark.parametrize("name", QUICK)
def test_a_planted_bug_is_seen_without_starting_a_program(catches: Mapping[str, Future[Catch]], name: str) -> None:
    found = catches[name].result(timeout=280)
    assert found.caught, found


@pytest.mark.parametrize("name", WITH_PROGRAMS)
def test_a_planted_bug_is_caught(servers: Servers, name: str) -> None:
    found = catch(BUGS[name], ROOT, servers, seed=SEED)
    assert found.caught, found


def test_in_a_copy_without_a_bug_nothing_is_caught(servers: Servers) -> None:
    """Of two: all of them are run on the sources themselves in every test run."""
    quick = {str(BUGS[name].quick): 1 for name in ("no token check on outcomes", "new key per attempt")}
    assert failures_unplanted(quick, ROOT, servers, seed=SEED) == {}
