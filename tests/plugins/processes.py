"""The real programs as fixtures: a scenario around this test's ledger, and drills that set their own stage.

`scenario(providers)` gives a stage whose relays, reconcilers and providers end with the test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from outbox_relay.trial.drill import OpenScenario
from outbox_relay.trial.grounds import Grounds
from outbox_relay.trial.processes import TEST_PROFILE, HttpProgram, Profile
from outbox_relay.trial.scenario import SECRET, KafkaPlace, Scenario, open_scenario
from tests.plugins.postgres import PostgresServer, TrialDatabase, drop_database, make_database

pytest_plugins = ("tests.plugins.provider",)

DRILLS = "tests/faults/"
SetStage = Callable[..., Scenario]
StartProgram = Callable[..., HttpProgram]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever kills or cuts real processes is marked `drill`."""
    for item in items:
        if item.nodeid.startswith(DRILLS):
            item.add_marker(pytest.mark.drill)


@pytest.fixture
def scenario(ledger: TrialDatabase, tmp_path: Path) -> Iterator[SetStage]:
    """Set a stage: providers by position; without `kafka` the ledger wakes; `base_urls` replaces providers."""
    with ExitStack() as stack:

        def set_stage(
            *providers: str,
            profile: Profile = TEST_PROFILE,
            kafka: KafkaPlace | None = None,
            base_urls: Mapping[str, str] | None = None,
            seed: int = 1,
            secret: str = SECRET,
        ) -> Scenario:
            return stack.enter_context(
                open_scenario(
                    ledger,
                    tmp_path,
                    providers=providers,
                    profile=profile,
                    kafka=kafka,
                    base_urls=base_urls,
                    seed=seed,
                    secret=secret,
                )
            )

        yield set_stage


@pytest.fixture
def open_stage(postgres_server: PostgresServer, ledger_template: str, tmp_path: Path) -> OpenScenario:
    """What a drill sets its stages with, each with a ledger of its own."""

    @contextmanager
    def opened(providers: Sequence[str], profile: Profile, url: str | None = None) -> Iterator[Scenario]:
        with ExitStack() as stack:
            if url is not None:
                yield stack.enter_context(Grounds(url, tmp_path).open_scenario(providers, profile))
                return
            database = make_database(postgres_server, ledger_template)
            stack.callback(drop_database, database)
            folder = tmp_path / database.name
            folder.mkdir()
            yield stack.enter_context(open_scenario(database, folder, providers=providers, profile=profile))

    return opened
