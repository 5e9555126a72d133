"""Turns build/bench-report.json into the tables and plots of docs/performance.md: `python -m bench.table`.

What stands between the two marks of the page is generated; the words around it are written by people.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

from bench.ratios import Spread, spread
from bench.run import REPORT
from bench.systems import PEERS_PYTHON, ROOT, everything

PAGE, SCALING = ROOT / "docs" / "performance.md", ROOT / "docs" / "scaling.md"
BEGIN, END = "<!-- figures: python -m bench.table -->", "<!-- end of figures -->"

ARITHMETIC_RATES = (100, 1_000, 5_000, 20_000)

Report = Mapping[str, object]
Rows = list[dict[str, object]]


def verdict(path: Path) -> str:
    """The ratios against their targets, for the terminal."""
    report = json.loads(path.read_text())
    load = report["load_average"]
    lines = [f"{path.relative_to(ROOT)}: load average {load['before']} before, {load['after']} after"]
    for name, judged in report["targets"].items():
        value = "not measured" if judged["value"] is None else f"{judged['value']:.2f}"
        mark = {True: "reached", False: "MISSED", None: ""}[judged["met"]]
        lines.append(f"  {name:28} {value:>12}  {judged['target']:>8}  {mark}")
    lines += [f"  not run: {what}: {why.splitlines()[0]}" for what, why in report["not_run"].items()]
    return "\n".join(lines)


def refresh(path: Path) -> None:
    """Write the generated parts of both pages, and draw the plots where matplotlib is installed."""
    report = json.loads(path.read_text())
    for page, text in ((PAGE, figures(report)), (SCALING, arithmetic(report))):
        head, _, rest = page.read_text().partition(BEGIN)
        _, _, tail = rest.partition(END)
        page.write_text(f"{head}{BEGIN}\n\n{text}\n{END}{tail}")
    if PEERS_PYTHON.exists():
        subprocess.run([str(PEERS_PYTHON), "-m", "bench.plots", str(path)], cwd=ROOT, check=True)


def figures(report: Report) -> str:
    """Every generated table, as Markdown."""
    parts = [_about(report), _ratios(report), _drains(report), _costs(report), _latencies(report), _growth(report)]
    return "\n".join(part for part in parts if part)


def arithmetic(report: Report) -> str:
    """What the measured costs of the ledger mode multiply to: one row per rate."""
    drains = [row for row in _rows(report, "drains") if row["latency_ms"] == 0]
    paths = ("worker_cpu_s_per_1000", "postgres_cpu_s_per_1000", "wal_bytes_per_action")
    costs = [found.middle for path in paths if (found := spread(drains, path, system="ledger")) is not None]
    if len(costs) != len(paths):
        return "No drain of the ledger mode was measured.\n"
    relay, postgres, wal = costs
    about = (
        f"Measured, ledger mode, CPU seconds per 1,000 actions: {relay:.2f} of the relay, {postgres:.2f} of PostgreSQL"
    )
    lines = [
        f"{about}; {wal:,.0f} bytes of WAL per action.",
        "",
        "| actions per second | relay cores | PostgreSQL cores | WAL MB/s | status records per second | |",
        "|---:|---:|---:|---:|---:|---|",
    ]
    top = max(float(str(row["actions_per_s"])) for row in drains if row["system"] == "ledger")
    for rate in ARITHMETIC_RATES:
        kind = "within what was measured" if rate <= top else "arithmetic"
        cells = f"{rate * relay / 1000:.1f} | {rate * postgres / 1000:.1f} | {rate * wal / 1e6:.1f} | {3 * rate:,}"
        lines.append(f"| {rate:,} | {cells} | {kind} |")
    return "\n".join([*lines, ""])


def _about(report: Report) -> str:
    machine, versions, load = report["machine"], report["versions"], report["load_average"]
    if not isinstance(machine, Mapping) or not isinstance(versions, Mapping) or not isinstance(load, Mapping):
        return ""
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    return (
        f"Measured on {machine['cores']} cores and {machine['memory_gb']} GB, {machine['system']}, Python "
        f"{machine['python']}; {named}. {report['rounds']} interleaved rounds, backlogs of {report['actions']:,} "
        f"(slow systems fewer), load average {load['before']} before and {load['after']} after.\n"
    )


def _ratios(report: Report) -> str:
    targets = report["targets"]
    if not isinstance(targets, Mapping):
        return ""
    lines = ["| ratio | measured | target | |", "|---|---:|---:|---|"]
    for name, judged in targets.items():
        if judged["value"] is not None:
            mark = "reached" if judged["met"] else "**missed**"
            lines.append(f"| `{name}` | {judged['value']:.2f} | {judged['target']} | {mark} |")
    left = [f"`{name}`" for name, judged in targets.items() if judged["value"] is None]
    lines += ["", f"Not measured in this run: {', '.join(left)}.", ""] if left else [""]
    return "\n".join(lines)


def _drains(report: Report) -> str:
    drains = _rows(report, "drains")
    if not drains:
        return ""
    lines = [
        "**Draining a backlog**, actions per second, median (min to max):",
        "",
        "| system | provider at 0 ms | provider at 50 ms | start-up s |",
        "|---|---:|---:|---:|",
    ]
    for name, title in _titles(drains).items():
        cells = [_span(spread(drains, "actions_per_s", system=name, latency_ms=ms), 0) for ms in (0, 50)]
        lines.append(f"| {title} | {cells[0]} | {cells[1]} | {_middle(drains, 'start_up_s', name, 1)} |")
    return "\n".join([*lines, ""])


def _costs(report: Report) -> str:
    drains = [row for row in _rows(report, "drains") if row["latency_ms"] == 0]
    if not drains:
        return ""
    lines = [
        "**What one action costs** (provider at 0 ms; medians):",
        "",
        "| system | worker CPU s/1,000 | PostgreSQL CPU | transactions | WAL B | of work | row versions | RSS MB |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    columns = (
        ("worker_cpu_s_per_1000", 2),
        ("postgres_cpu_s_per_1000", 2),
        ("tx_per_action", 2),
        ("wal_bytes_per_action", 0),
        ("wal_bytes_of_work_per_action", 0),
        ("row_versions_per_action", 1),
        ("rss_mb", 0),
    )
    for name, title in _titles(drains).items():
        lines.append(
            f"| {title} | " + " | ".join(_middle(drains, path, name, digits) for path, digits in columns) + " |"
        )
    return "\n".join([*lines, ""])


def _latencies(report: Report) -> str:
    latencies = _rows(report, "latencies")
    if not latencies:
        return ""
    lines = [
        "**Latency at 100 per second onto an idle worker**, ms, medians of the rounds:",
        "",
        "| system | arrival p50 | p90 | p99 | stored p50 | p90 | p99 | idle CPU % | idle RSS MB |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    paths = [f"{what}_ms.{share}" for what in ("arrival", "stored") for share in ("p50", "p90", "p99")]
    for name, title in _titles(latencies).items():
        cells = [_middle(latencies, path, name, 1) for path in paths]
        cells += [_middle(latencies, "idle_cpu_percent", name, 1), _middle(latencies, "idle_rss_mb", name, 0)]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def _growth(report: Report) -> str:
    growth = report["growth"]
    if not isinstance(growth, Mapping) or not growth:
        return ""
    lines = ["**Growth** (`WAKEUPS=ledger`):", "", "| scenario | ratios |", "|---|---|"]
    for scenario in growth.values():
        found = ", ".join(f"`{name}` {value:.2f}" for name, value in scenario["ratios"].items())
        lines.append(f"| {scenario['about'].rstrip('.')} | {found} |")
    return "\n".join([*lines, ""])


def _rows(report: Report, name: str) -> Rows:
    found = report[name]
    return found if isinstance(found, list) else []


def _titles(rows: Rows) -> dict[str, str]:
    """The systems that were measured, in their usual order."""
    seen = {row["system"] for row in rows}
    return {name: system.title for name, system in everything("").items() if name in seen}


def _middle(rows: Rows, path: str, system: str, digits: int) -> str:
    found = spread(rows, path, system=system)
    return "-" if found is None else f"{found.middle:,.{digits}f}"


def _span(found: Spread | None, digits: int) -> str:
    if found is None:
        return "-"
    return f"{found.middle:,.{digits}f} ({found.low:,.{digits}f} to {found.high:,.{digits}f})"


if __name__ == "__main__":
    refresh(REPORT)
    print(verdict(REPORT))
