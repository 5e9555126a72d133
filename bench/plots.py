"""Draws docs/performance/*.png from a report. Runs in the peers' environment, the only one with matplotlib."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

from bench.ratios import spread
from bench.systems import ROOT, everything

FOLDER = ROOT / "docs" / "performance"
OURS, OTHERS, LIMITS = "#1f6f8b", "#b0b7bf", "#e0a458"
Rows = list[dict[str, object]]


def colour(name: str) -> str:
    """Ours, a limit, or somebody else's."""
    if name in ("ledger", "kafka"):
        return OURS
    return LIMITS if name.startswith(("limit", "raw_cdc")) else OTHERS


def bars(rows: Rows, path: str, title: str, unit: str, file: str) -> None:
    """One bar per system, the median, with a line from the least to the most."""
    found = {name: spread(rows, path, system=name) for name in everything("")}
    measured = [(name, one) for name, one in found.items() if one is not None]
    if not measured:
        return
    measured.sort(key=lambda pair: pair[1].middle)
    titles = everything("")
    figure, axes = plt.subplots(figsize=(8, 0.45 * len(measured) + 1.2))
    errors = [[one.middle - one.low for _, one in measured], [one.high - one.middle for _, one in measured]]
    axes.barh(
        [titles[name].title for name, _ in measured],
        [one.middle for _, one in measured],
        xerr=errors,
        color=[colour(name) for name, _ in measured],
        error_kw={"elinewidth": 1, "ecolor": "#444444"},
    )
    # Bars begin at zero, and each says its figure: a slow system's bar may be too short to see.
    for place, (_, one) in enumerate(measured):
        axes.annotate(f"{one.middle:,.4g}", (one.high, place), xytext=(4, 0), textcoords="offset points", va="center")
    axes.margins(x=0.12)
    axes.set_xlabel(unit)
    axes.set_title(title, loc="left", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    # No date inside, so that the same figures make the same file.
    figure.savefig(FOLDER / file, dpi=110, metadata={"Software": None})
    plt.close(figure)


def main(path: Path) -> None:
    """Draw every plot that the report has figures for."""
    report = json.loads(path.read_text())
    FOLDER.mkdir(parents=True, exist_ok=True)
    fast = [row for row in report["drains"] if row["latency_ms"] == 0]
    slow = [row for row in report["drains"] if row["latency_ms"] == 50]
    bars(fast, "actions_per_s", "Backlog drained, provider at 0 ms", "actions per second", "drain.png")
    bars(
        slow,
        "actions_per_s",
        "Backlog drained, provider at 50 ms, 200 in flight",
        "actions per second",
        "drain-50ms.png",
    )
    bars(fast, "cpu_s_per_1000", "CPU of worker and PostgreSQL", "seconds per 1,000 actions", "cpu.png")
    bars(fast, "wal_bytes_per_action", "Write-ahead log", "bytes per action, enqueue included", "wal.png")
    latency = report["latencies"]
    bars(
        latency,
        "arrival_ms.p50",
        "Commit to arrival at 100/s, p50",
        "milliseconds",
        "latency-p50.png",
    )
    bars(
        latency,
        "arrival_ms.p99",
        "Commit to arrival at 100/s, p99",
        "milliseconds",
        "latency-p99.png",
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
