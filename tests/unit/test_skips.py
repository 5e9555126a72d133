"""A skipped test cannot pass for a test in CI."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.plugins import skips

ROOT = Path(__file__).resolve().parents[2]


def run(folder: Path, *, ci: str, allowed: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on one skipped and one passing test, with the plugin and a list of our own."""
    (folder / "test_a.py").write_text(
        "import pytest\n\n@pytest.mark.skip(reason='no engine')\ndef test_skipped(): ...\n\ndef test_runs(): ...\n"
    )
    (folder / "allowed.txt").write_text(allowed)
    (folder / "conftest.py").write_text(
        "from pathlib import Path\nfrom tests.plugins import skips\n"
        "skips.ALLOWED = Path(__file__).parent / 'allowed.txt'\n"
        "pytest_plugins = ['tests.plugins.skips']\n"
    )
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:randomly",
            "--rootdir",
            folder,
            folder,
        ],
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "CI": ci},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_surplus_skip_fails_ci_and_is_named(tmp_path: Path) -> None:
    done = run(tmp_path, ci="true", allowed="")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "skipped without leave" in done.stdout
    assert "test_a.py::test_skipped" in done.stdout


def test_a_listed_skip_passes_ci(tmp_path: Path) -> None:
    assert run(tmp_path, ci="true", allowed="test_a.py::test_ski*  # no engine on this machine\n").returncode == 0


def test_a_skip_outside_ci_is_only_reported(tmp_path: Path) -> None:
    assert run(tmp_path, ci="", allowed="").returncode == 0


def test_a_listed_skip_needs_a_reason() -> None:
    with pytest.raises(pytest.UsageError, match="say why"):
        skips.allowed_patterns("test_a.py::test_b\n")
