"""What people install is the wheel: it brings its data, and both programs and the command start from it alone."""

import os
import subprocess
import sys
import urllib.error
import urllib.request
import venv
import zipfile
from pathlib import Path

import pytest

from outbox_relay.trial.processes import Program

ROOT = Path(__file__).resolve().parents[2]

PROVIDERS = """
accounts:
  - {provider: resend, mode: hold, credentials: {api_key: {env: RESEND_API_KEY}}, review_owner: oncall}
"""

# The first run downloads the locked wheels; pip's own cache serves the next.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built wheel."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


class Installation:
    """A clean environment with the locked runtime dependencies and the wheel, and nothing else."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder = folder
        venv.create(folder, with_pip=True)
        pip = [str(self.bin("python")), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        lock = str(ROOT / "requirements" / "runtime.txt")
        subprocess.run([*pip, "--require-hashes", "--only-binary", ":all:", "-r", lock], check=True)
        subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True)

    def bin(self, name: str) -> Path:
        return self.folder / "bin" / name

    def run(self, *command: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment in an empty folder with an empty environment."""
        argv = [str(self.bin(command[0])), *command[1:]]
        base = {"PATH": os.defpath, "HOME": str(cwd), "NO_COLOR": "1", "TERM": "dumb"}
        return subprocess.run(
            argv,
            cwd=cwd,
            env=base | env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
        )


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    return Installation(tmp_path_factory.mktemp("clean") / "env", wheel)


def test_the_wheel_holds_programs_data_and_licences_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for needed in (
        "outbox_relay/__main__.py",
        "reconciler/__main__.py",
        "outbox_relay/data/schemas/states.toml",
        "outbox_relay/data/schemas/ledger/roles.sql",
        "outbox_relay/data/schemas/topics/asyncapi.yaml",
        "outbox_relay/data/connectors/outbox-connector.json",
        "outbox_relay/providers/contracts/resend.yaml",
        "outbox_relay/py.typed",
    ):
        assert needed in names
    assert [name for name in names if name.startswith("outbox_relay/data/schemas/ledger/migrations/")]
    assert {Path(name).name for name in names if "/licenses/" in name} == {"LICENSE", "NOTICE"}
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"outbox_relay", "reconciler"}
    assert not [name for name in names if "__pycache__" in name or Path(name).name.startswith("test_")]


def test_the_command_starts(installed: Installation, tmp_path: Path) -> None:
    done = installed.run("outbox", "--help", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for verb in ("migrate", "providers", "connect", "actions", "reviews", "doctor"):
        assert verb in done.stdout


@pytest.mark.parametrize("program", ["outbox_relay", "reconciler"])
def test_a_program_without_settings_says_which_are_missing(
    installed: Installation, tmp_path: Path, program: str
) -> None:
    done = installed.run("python", "-m", program, cwd=tmp_path)
    said = done.stdout + done.stderr
    assert done.returncode == 2, said
    assert "OUTBOX_" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("program", ["outbox_relay", "reconciler"])
def test_a_program_whose_ledger_is_away_lives_waits_and_stops_when_told(
    installed: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.chdir(tmp_path)  # the program is the wheel's, not this checkout's
    (tmp_path / "providers.yaml").write_text(PROVIDERS)
    env = {
        "OUTBOX_DATABASE_URL": "postgresql://nobody:secret-word@127.0.0.1:9/none",
        "OUTBOX_ENVIRONMENT": "test",
        "OUTBOX_PROVIDERS_FILE": str(tmp_path / "providers.yaml"),
        "OUTBOX_WAKEUPS": "ledger",
        "OUTBOX_LISTEN": "127.0.0.1:0",
        "OUTBOX_LOG_FORMAT": "json",
        "RESEND_API_KEY": "another-secret",
        "PATH": os.defpath,
    }
    with Program(program, [str(installed.bin("python")), "-m", program], env, tmp_path) as running:
        port = running.wait_for("listening")["port"]
        assert status(f"http://127.0.0.1:{port}/livez") == 200
        assert status(f"http://127.0.0.1:{port}/readyz") == 503
        assert running.terminate() == 0
        assert "secret" not in running.log_path.read_text()


def status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_data_files_are_found_inside_the_installation(installed: Installation, tmp_path: Path) -> None:
    code = (
        "from outbox_relay.resources import resource\n"
        "print(resource('schemas', 'ledger', 'migrations'))\nprint(resource('connectors', 'outbox-connector.json'))\n"
    )
    done = installed.run("python", "-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert all(line.startswith(str(installed.folder)) for line in done.stdout.splitlines())


def test_every_module_imports_without_extras(installed: Installation, tmp_path: Path) -> None:
    """The local stack is an extra; nothing else may need one."""
    code = (
        "import importlib, pkgutil, outbox_relay, reconciler\n"
        "for package in (outbox_relay, reconciler):\n"
        "    for module in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        if '.local' not in module.name and not module.name.endswith('__main__'):\n"
        "            importlib.import_module(module.name)\n"
    )
    done = installed.run("python", "-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
