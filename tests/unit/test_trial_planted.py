"""The planted bugs fit the code as it is: otherwise a drill would be praised for catching nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from outbox_relay.errors import UsageError
from outbox_relay.trial.__main__ import DRILLS
from outbox_relay.trial.planted import Edit, PlantedBug, read_bugs

ROOT = Path(__file__).resolve().parents[2]
BUGS = read_bugs(ROOT / "tests/faults/planted")


def is_there(catcher: str) -> bool:
    """True for the name of a drill, and for the id of a test that is written down where the id says."""
    file, found, name = catcher.partition("::")
    if not found:
        return catcher in DRILLS
    return f"def {name}(" in (ROOT / file).read_text()


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_changes_its_place_and_names_who_catches_it(bug: PlantedBug, tmp_path: Path) -> None:
    files = {edit.file for edit in bug.edits}
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    bug.plant(tmp_path)
    for file in files:
        assert (tmp_path / file).read_text() != (ROOT / file).read_text()
    assert all(is_there(catcher) for catcher in (bug.caught_by, bug.quick or bug.caught_by))
    assert bug.shows


def test_at_least_twelve_bugs_are_planted() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 12


def test_a_place_that_has_moved_is_an_error_and_not_a_bug(tmp_path: Path) -> None:
    (tmp_path / "there.py").write_text("x = 1\n")
    for find in ("x = 2", ""):
        with pytest.raises(UsageError, match="occurs"):
            Edit("there.py", find, "y").apply(tmp_path, "moved")
