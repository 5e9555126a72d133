"""The planted bugs fit the code as it is: otherwise a drill would be praised for catching nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from outbox_relay.trial.__main__ import DRILLS
from outbox_relay.trial.planted import PlantedBug, read_bugs

ROOT = Path(__file__).resolve().parents[2]
BUGS = read_bugs(ROOT / "tests/faults/planted/bugs.toml")


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_changes_its_place_and_names_a_drill(bug: PlantedBug, tmp_path: Path) -> None:
    copy = tmp_path / bug.file
    copy.parent.mkdir(parents=True)
    shutil.copy(ROOT / bug.file, copy)
    bug.plant(tmp_path)
    assert copy.read_text() != (ROOT / bug.file).read_text()
    assert bug.drill in DRILLS


def test_at_least_twelve_bugs_are_planted() -> None:
    assert len({bug.name for bug in BUGS}) >= 12
