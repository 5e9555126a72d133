"""The locks fit the declarations, agree with each other, and name no registry."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^\s;\\]+)", re.MULTILINE)


def pins(name: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for package, version in PIN.findall((ROOT / "requirements" / name).read_text()):
        found.setdefault(canonicalize_name(package), set()).add(version)
    return found


def declared(*sources: list[str]) -> list[Requirement]:
    return [Requirement(line) for source in sources for line in source]


def unmet(requirements: list[Requirement], lock: dict[str, set[str]]) -> list[str]:
    return [
        str(requirement)
        for requirement in requirements
        if not any(
            requirement.specifier.contains(version) for version in lock.get(canonicalize_name(requirement.name), ())
        )
    ]


def test_the_runtime_lock_meets_every_declared_dependency() -> None:
    assert not unmet(declared(PROJECT["project"]["dependencies"]), pins("runtime.txt")), "run `make lock`"


def test_the_development_lock_meets_every_declared_dependency() -> None:
    groups = PROJECT["dependency-groups"].values()
    extras = [PROJECT["project"]["optional-dependencies"]["local"]]
    wanted = declared(PROJECT["project"]["dependencies"], *groups, *extras)
    assert not unmet(wanted, pins("dev.txt")), "run `make lock`"


def test_the_build_lock_meets_the_build_system() -> None:
    assert not unmet(declared(PROJECT["build-system"]["requires"]), pins("build.txt")), "run `make lock`"


@pytest.mark.parametrize("other", ["runtime.txt", "build.txt"])
def test_what_is_shipped_is_what_was_tested(other: str) -> None:
    tested = pins("dev.txt")
    assert {name: versions for name, versions in pins(other).items() if tested.get(name) != versions} == {}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_every_pin_has_a_hash_and_no_address(lock: Path) -> None:
    text = lock.read_text()
    blocks = re.split(r"\n(?=[A-Za-z0-9])", text)
    assert not [block.splitlines()[0] for block in blocks if PIN.match(block) and "--hash=sha256:" not in block]
    assert "://" not in text
