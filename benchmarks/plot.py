"""Draws the headline of an ingest report as SVG: bars with their medians, lines for the spread.

``python -m benchmarks.plot REPORT.json FILE.svg``
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from benchmarks.ingest.engines import ENGINES, FLOOR, LAKEMARK

WIDTH = 860
_BARS_FROM, _BARS_TO = 236, 690
_BAR, _STEP, _MARGIN = 18, 27, 24
_TITLE_HEIGHT, _GAP, _FOOTER = 52, 22, 34

_STYLE = """
  text { font: 14px Helvetica, Arial, sans-serif; fill: #1b2733; }
  .paper { fill: #ffffff; stroke: #d5dce4; }
  .title { font-weight: bold; font-size: 16px; }
  .note { font-size: 12px; fill: #55626f; }
  .label { text-anchor: end; }
  .ours { fill: #00796b; }
  .floor { fill: #b3bcc6; }
  .peer { fill: #5b7fa6; }
  .spread { stroke: #1b2733; stroke-width: 1.5; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .paper { fill: #0d1117; stroke: #30363d; }
    .note { fill: #9aa5b1; }
    .ours { fill: #2bb39f; }
    .floor { fill: #57606a; }
    .peer { fill: #7aa2d2; }
    .spread { stroke: #e6edf3; }
  }"""


@dataclass(frozen=True, slots=True)
class Panel:
    """The bars of one workload.

    Attributes:
        name: the name of the workload.
        workload: its part of the report.
        top: the vertical position.
    """

    name: str
    workload: Mapping[str, Any]
    top: int = 0

    @property
    def is_rate(self) -> bool:
        """Whether the bars are rates, not times."""
        return not self.workload["headline"].endswith("batch_s")

    @property
    def spreads(self) -> dict[str, Mapping[str, float]]:
        """The headline of every engine that has one."""
        headline = self.workload["headline"]
        spreads = self.workload["spreads"]
        return {name: each[headline] for name, each in spreads.items() if headline in each}

    @property
    def height(self) -> int:
        """The height, with the title."""
        return _TITLE_HEIGHT + _STEP * len(self.spreads)


def main() -> None:
    report = json.loads(Path(sys.argv[1]).read_text())
    Path(sys.argv[2]).write_text(draw(report))


def draw(report: Mapping[str, Any]) -> str:
    """Return the SVG: one workload of large batches, and one of small batches if there is one."""
    panels, top = [], _MARGIN
    for name in headline_workloads(report["workloads"]):
        panels.append(Panel(name, report["workloads"][name], top))
        top += panels[-1].height + _GAP
    height = top + _FOOTER
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" aria-label="{_summary(panels)}">',
        f"<style>{_STYLE}\n</style>",
        f'<rect class="paper" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>',
        *(line for panel in panels for line in _panel(panel)),
        _text(_MARGIN, height - 18, _footer(report["about"]), "note"),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def headline_workloads(workloads: Mapping[str, Any]) -> list[str]:
    """Choose the first workload with a rate, and the first one with the time of a batch."""
    panels = [Panel(name, workload) for name, workload in workloads.items()]
    chosen = []
    for is_rate in (True, False):
        names = [panel.name for panel in panels if panel.is_rate is is_rate and panel.spreads]
        chosen += names[:1]
    return chosen


def _panel(panel: Panel) -> Iterator[str]:
    title = "Records per second (more is better)"
    if not panel.is_rate:
        title = "Seconds for a batch (less is better)"
    yield _text(_MARGIN, panel.top + 14, title, "title")
    yield _text(_MARGIN, panel.top + 33, _note(panel), "note")
    longest = max((spread["high"] for spread in panel.spreads.values()), default=1.0)
    for place, (name, spread) in enumerate(panel.spreads.items()):
        top = panel.top + _TITLE_HEIGHT + _STEP * place
        yield from _bar(name, spread, top, (_BARS_TO - _BARS_FROM) / longest, panel.is_rate)


def _bar(
    name: str, spread: Mapping[str, float], top: int, scale: float, is_rate: bool
) -> Iterator[str]:
    kind = {FLOOR: "floor"}.get(name, "ours" if name.startswith(LAKEMARK) else "peer")
    length, low, high = (spread[part] * scale for part in ("median", "low", "high"))
    middle, base = top + _BAR / 2, top + 14
    yield _text(_BARS_FROM - 10, base, _title(name), "label")
    yield (
        f'<rect class="{kind}" x="{_BARS_FROM}" y="{top}" width="{length:.1f}" height="{_BAR}"/>'
    )
    if high > low:
        yield (
            f'<line class="spread" x1="{_BARS_FROM + low:.1f}" x2="{_BARS_FROM + high:.1f}" '
            f'y1="{middle}" y2="{middle}"/>'
        )
    yield _text(round(_BARS_FROM + max(length, high)) + 8, base, _value(spread, is_rate))


def _value(spread: Mapping[str, float], is_rate: bool) -> str:
    return f"{spread['median']:,.0f}" if is_rate else f"{spread['median']:.2f} s"


def _note(panel: Panel) -> str:
    measured = panel.workload["phases"][-1]
    repeats = max(len(runs) for runs in panel.workload["runs"].values())
    part = "without the first batch; " if panel.is_rate else ""
    runs = "1 run" if repeats == 1 else f"median of {repeats} runs, line: smallest to largest"
    size = f"{measured['records']:,} records in batches of {measured['batch']:,}"
    return f"{panel.name}: {size}; {part}{runs}"


def _footer(about: Mapping[str, Any]) -> str:
    return (
        f"{about['cpus']} cores, {about['memory']}, load {about['load_before_the_run']} before the "
        f"run; Spark {about['spark']}; {about['date']}, commit {about['lakemark']}"
    )


def _summary(panels: list[Panel]) -> str:
    values = (
        f"{_title(name)} {_value(spread, panel.is_rate)}"
        for panel in panels
        for name, spread in panel.spreads.items()
    )
    return escape(", ".join(values), {'"': "&quot;"})


def _title(engine: str) -> str:
    return ENGINES[engine].title if engine in ENGINES else engine


def _text(x: int, y: float, text: str, kind: str = "") -> str:
    chosen = f' class="{kind}"' if kind else ""
    return f'<text{chosen} x="{x}" y="{y}">{escape(text)}</text>'


if __name__ == "__main__":
    main()
