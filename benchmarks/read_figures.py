"""The report of the read benchmark: times of queries, and ratios between engines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import median

from benchmarks.engines import machine
from benchmarks.peers.read_contract import ReadAnswer, Reading


@dataclass(frozen=True, slots=True)
class ReadFigures:
    """The figures of one query of one engine.

    Attributes:
        rows: the rows of the result.
        first_s: the time of the first run, in which a JVM loads classes and compiles.
        steady_s: the median time of the later runs; the first time if there was no other run.
        rows_per_s: the rate in the steady state.
        read_bytes: the fewest bytes that one run read from files.
        peak_memory_bytes: the peak memory of the engine's process, up to its last query.
        slices: the file slices that planning selected, if the engine reports them.
    """

    rows: int
    first_s: float
    steady_s: float
    rows_per_s: float
    read_bytes: int
    peak_memory_bytes: int
    slices: int | None

    @classmethod
    def of(cls, reading: Reading, peak_memory_bytes: int) -> ReadFigures:
        """Compute the figures of one query."""
        steady_s = median(reading.seconds[1:] or reading.seconds)
        return cls(
            rows=reading.sums.rows,
            first_s=reading.seconds[0],
            steady_s=steady_s,
            rows_per_s=reading.sums.rows / steady_s,
            read_bytes=min(reading.read_bytes),
            peak_memory_bytes=peak_memory_bytes,
            slices=reading.slices,
        )


class Figures:
    """The figures of a run so far.

    Args:
        ours: the engine that the others are compared with.
    """

    def __init__(self, ours: str) -> None:
        self._ours = ours
        self._figures: dict[str, dict[str, ReadFigures]] = {}

    def note(self, answers: Mapping[str, ReadAnswer]) -> None:
        """Print and keep the figures of these engines."""
        figures = by_query(answers)
        self._figures |= figures
        print("\n".join(as_lines(figures, self._ours)), flush=True)

    def report(self, settings: Mapping[str, object]) -> dict[str, object]:
        """Return settings and figures for the JSON report."""
        return {
            "machine": machine(),
            "settings": dict(settings),
            "figures": {
                query: {name: asdict(each) for name, each in engines.items()}
                for query, engines in self._figures.items()
            },
            "speedups": speedups(self._figures, self._ours),
        }


#: The figures of each query, by the name of the query and of the engine.
Report = Mapping[str, Mapping[str, ReadFigures]]


def by_query(answers: Mapping[str, ReadAnswer]) -> dict[str, dict[str, ReadFigures]]:
    """Group the answers of all engines by query, and compute their figures."""
    found: dict[str, dict[str, ReadFigures]] = {}
    for engine, answer in answers.items():
        for reading in answer.readings:
            figures = ReadFigures.of(reading, answer.peak_memory_bytes)
            found.setdefault(reading.query, {})[engine] = figures
    return found


def speedups(report: Report, of: str) -> dict[str, dict[str, float]]:
    """Compute how many times faster ``of`` is than every other engine, for each query."""
    return {
        query: {
            name: theirs.steady_s / engines[of].steady_s
            for name, theirs in engines.items()
            if name != of
        }
        for query, engines in report.items()
        if of in engines
    }


def as_lines(report: Report, of: str) -> list[str]:
    """Render the figures as a table."""
    lines = [
        f"{'':36}{'rows':>12}{'first':>10}{'steady':>10}{'rows/s':>12}{'MB read':>10}"
        f"{'peak MiB':>10}{'faster':>9}"
    ]
    faster = speedups(report, of)
    for query, engines in report.items():
        for name, each in engines.items():
            ratio = faster.get(query, {}).get(name)
            lines.append(
                f"{query + ' ' + name:36}{each.rows:12,}{each.first_s:8.2f} s{each.steady_s:8.2f} s"
                f"{each.rows_per_s:12,.0f}{each.read_bytes / 1e6:10,.1f}"
                f"{each.peak_memory_bytes / (1 << 20):10,.0f}"
                f"{'' if ratio is None else f'{ratio:.2f}x':>9}"
            )
    return lines
