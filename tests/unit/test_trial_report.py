"""A run of the drills that was interrupted goes on with what is missing; what other programs showed counts nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from outbox_relay.errors import ConditionNotMet, NotPossibleHere
from outbox_relay.trial import __main__ as program
from outbox_relay.trial.drill import Drill, DrillResult, OpenScenario
from outbox_relay.trial.grounds import Grounds
from outbox_relay.trial.lanes import Lanes, Say, Task
from outbox_relay.trial.processes import HOLDING_PROFILE, Profile
from outbox_relay.trial.report import Order, Report

ORDER = Order(HOLDING_PROFILE, 3, 42)


class Drills:
    """Drills by name: one passes, one breaks off, one cannot be run here, one fails in a way of its own."""

    def __init__(self) -> None:
        self.runs: list[str] = []

    def named(self, name: str) -> Drill:
        def run(_: OpenScenario, runs: int, seed: int, profile: Profile) -> list[DrillResult]:
            self.runs.append(name)
            match name:
                case "missed":
                    raise ConditionNotMet("waited in vain")
                case "elsewhere":
                    raise NotPossibleHere("no small disk", hint="mount one")
                case "broken":
                    raise KeyError("surprise")
                case _:
                    return [DrillResult(name, "resend", "A", profile.name, runs, {"1": runs}, 0, 0, 0, seed, 1.0)]

        return run


@pytest.fixture
def drills(monkeypatch: pytest.MonkeyPatch) -> Drills:
    made = Drills()
    names = ("first", "second", "missed", "elsewhere", "broken")
    monkeypatch.setattr(program, "DRILLS", {name: made.named(name) for name in names})
    return made


def run(report: Report, *names: str) -> None:
    grounds = Grounds("postgresql://nowhere", report.path.parent)
    Lanes(2).run([program.task(name, ORDER, grounds, report) for name in names])


def written(path: Path) -> dict[str, list[dict[str, object]]]:
    found: dict[str, list[dict[str, object]]] = json.loads(path.read_text())
    return found


def test_an_interrupted_run_goes_on_with_what_is_missing(drills: Drills, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    run(Report(path), "first")
    again = Report(path)
    run(again, "first", "second")
    assert drills.runs == ["first", "second"]
    again.finish()
    assert {entry["drill"] for entry in written(path)["drills"]} == {"first", "second"}


def test_what_failed_is_run_again(drills: Drills, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    for _ in range(2):
        run(Report(path), "missed")
    assert drills.runs == ["missed", "missed"]


def test_another_order_of_a_drill_is_another_run(drills: Drills, tmp_path: Path) -> None:
    run(Report(tmp_path / "report.json"), "first")
    more = Report(tmp_path / "report.json")
    assert more.has("first", ORDER)
    assert not more.has("first", Order(HOLDING_PROFILE, 300, 42))
    assert drills.runs == ["first"]


def test_changed_programs_start_anew(drills: Drills, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.json"
    run(Report(path), "first")
    monkeypatch.setattr("outbox_relay.trial.report.digest_of", lambda: "others")
    run(Report(path), "first")
    assert drills.runs == ["first", "first"]


def test_a_finished_run_is_not_taken_for_an_interrupted_one(drills: Drills, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    first = Report(path)
    run(first, "first")
    first.finish()
    assert not Report(path).has("first", ORDER)
    assert Report(path, resume=True).has("first", ORDER)
    assert drills.runs == ["first"]


def test_one_drill_that_breaks_costs_the_others_nothing(
    drills: Drills, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = Report(tmp_path / "report.json")
    run(report, "broken", "missed", "elsewhere", "first")
    assert sorted(drills.runs) == ["broken", "elsewhere", "first", "missed"]
    assert not report.passed
    found = written(tmp_path / "report.json")
    assert {entry["drill"]: entry["passed"] for entry in found["drills"]} == {
        "broken": False,
        "missed": False,
        "first": True,
    }
    assert [(entry["drill"], entry["why"]) for entry in found["not_run"]] == [
        ("elsewhere", "no small disk: mount one")
    ], "neither passed nor failed"
    assert "BROKE" in capsys.readouterr().out


def test_lanes_begin_nothing_more_after_an_exception() -> None:
    begun: list[str] = []

    def fail(_: Say) -> None:
        begun.append("fail")
        raise KeyError("surprise")

    with pytest.raises(KeyError):
        Lanes(1).run([Task("fail", fail), *(Task(str(n), lambda _, n=n: begun.append(str(n))) for n in range(99))])  # type: ignore[misc]
    assert len(begun) < 100
