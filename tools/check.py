"""Run every check that needs no running service, two at a time, and say which failed and how to mend it.

It never changes a file and never reaches the network. The order is by length, the longest first, so that the whole
takes little more than its longest step. `tools/check NAME...` runs single steps.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
AT_ONCE = 2
STEP_LIMIT_S = 300


@dataclass(frozen=True, slots=True)
class Step:
    """One check: its command, and what a person does when it fails."""

    name: str
    command: tuple[str, ...]
    remedy: str


@dataclass(frozen=True, slots=True)
class Result:
    """How one step ended."""

    step: Step
    exit_code: int
    output: str
    duration_s: float


def tool(name: str) -> str:
    """Path of a locked tool beside the running Python."""
    return str(BIN / name)


def found(*patterns: str) -> tuple[str, ...]:
    """Files of the project by pattern, in a stable order."""
    return tuple(sorted({str(path.relative_to(ROOT)) for pattern in patterns for path in ROOT.glob(pattern)}))


def steps() -> Iterator[Step]:
    """List the steps, longest first; a step whose files do not exist is left out."""
    yield Step("types", (tool("mypy"),), "correct the types; a narrow `# type: ignore[code]` says why beside it")
    yield Step("imports", (tool("lint-imports"), "--no-cache", "--no-logo"),
               "move the code to the layer it belongs to, or place a new module in [tool.importlinter]")  # fmt: skip
    yield Step("lint", (tool("ruff"), "check", "--no-cache", "."), ".venv/bin/ruff check --fix .")
    yield Step("format", (tool("ruff"), "format", "--no-cache", "--diff", "--quiet", "."), ".venv/bin/ruff format .")
    yield Step("generated", (sys.executable, "tools/generate.py", "--check"), "make generate")
    yield Step("topics", (sys.executable, "tools/topic_schemas.py", "--check"), "make generate")
    yield Step("tidy", (sys.executable, "tools/tidy.py"), "CONTRIBUTING.md has the house rules and their reasons")
    yield Step("dependencies", (tool("deptry"), "."), "declare what is imported in pyproject.toml, drop what is not")
    yield Step("spelling", (tool("typos"), "--format", "brief"), "correct the word, or list it in [tool.typos]")
    yield Step("yaml", (tool("yamllint"), "--strict", "."), "see .yamllint.yaml")
    yield from file_steps()


def file_steps() -> Iterator[Step]:
    """List the checks of SQL, schemas and container files."""
    if sql := found("schemas/**/*.sql"):
        yield Step("sql", (sys.executable, "tools/parse_sql.py", *sql), "correct the statement at the position shown")
    if migrations := found("schemas/ledger/migrations/*.sql"):
        yield Step("migrations", (tool("squawk"), *migrations),
                   "do not lock a busy table; .squawk.toml has the exceptions")  # fmt: skip
    if schemas := found("schemas/**/*.schema.json", "helm/*/values.schema.json"):
        yield Step("schemas", (tool("check-jsonschema"), "--check-metaschema", *schemas), "correct the JSON Schema")
    if compose := found("compose.yaml"):
        yield Step("compose", (tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", *compose),
                   "correct compose.yaml")  # fmt: skip
    if image := found("Dockerfile"):
        yield Step("image", (tool("hadolint"), *image), "each rule of hadolint explains itself in its documentation")
    if workflows := found(".github/workflows/*.yml"):
        schema = ("--builtin-schema", "vendor.github-workflows")
        yield Step("workflows", (tool("check-jsonschema"), *schema, *workflows), "correct the workflow")
    yield Step("shell", ("bash", "-n", *found(".ci/run", "tools/check", "tools/build-image")), "correct the script")


def run(step: Step) -> Result:
    """Run one step to its end, or to its limit."""
    started = time.monotonic()
    try:
        done = subprocess.run(
            step.command, cwd=ROOT, capture_output=True, text=True, timeout=STEP_LIMIT_S, stdin=subprocess.DEVNULL,
            env={**os.environ, "NO_COLOR": "1", "PYTHONPATH": str(ROOT)}, check=False,
        )  # fmt: skip
        code, output = done.returncode, done.stdout + done.stderr
    except FileNotFoundError as error:
        code, output = 127, f"{error.filename} is missing: run `make install`\n"
    except subprocess.TimeoutExpired:
        code, output = 124, f"not done after {STEP_LIMIT_S} s\n"
    return Result(step, code, output, time.monotonic() - started)


def main(names: list[str]) -> int:
    """Run the named steps, or all; 0 when every one passed."""
    chosen = [step for step in steps() if not names or step.name in names]
    if unknown := set(names) - {step.name for step in chosen}:
        print(f"no such step: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    started = time.monotonic()
    failed = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for result in pool.map(run, chosen):
            word = "ok    " if result.exit_code == 0 else "FAILED"
            print(f"{word} {result.step.name:<13} {result.duration_s:5.1f} s", flush=True)
            if result.exit_code:
                failed.append(result)
    for result in failed:
        print(f"\n---- {result.step.name} ----\n{result.output.rstrip()}\n  to mend it: {result.step.remedy}")
    verdict = f"{len(failed)} failed: {', '.join(r.step.name for r in failed)}" if failed else "all passed"
    print(f"\nmake check: {len(chosen)} steps in {time.monotonic() - started:.0f} s, {verdict}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
