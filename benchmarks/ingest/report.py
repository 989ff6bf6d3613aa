"""The report of a run: Markdown for people, and the same figures with every batch as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass

from benchmarks.ingest.engines import LAKEMARK
from benchmarks.ingest.figures import Figures, Spread, durations_s, ratios, spreads
from benchmarks.ingest.measure import Outcome
from benchmarks.workloads.workload import Workload

_TITLES = {
    "records_per_s": "records/s",
    "steady_records_per_s": "steady",
    "first_batch_s": "first batch",
    "batch_s": "batch",
}
#: How much of the output of a failed engine a report shows.
_MOST_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class WorkloadReport:
    """The figures of one workload.

    Attributes:
        name: the name of the workload.
        workload: the workload, in the size that ran.
        outcome: the answers of the engines.
    """

    name: str
    workload: Workload
    outcome: Outcome

    @property
    def headline(self) -> str:
        """The figure that the workload is about."""
        return "batch_s" if self.workload.is_small else "steady_records_per_s"

    @property
    def runs(self) -> dict[str, list[Figures]]:
        """The figures of every repeat, by engine."""
        return {
            name: [Figures.of(answer) for answer in answers]
            for name, answers in self.outcome.answers.items()
        }

    def as_json(self) -> dict[str, object]:
        """Return everything that was measured."""
        runs, workload = self.runs, self.workload
        faster = ratios(runs, LAKEMARK, self.headline)
        return {
            "about": workload.about,
            "phases": [asdict(phase) for phase in workload.phases],
            "headline": self.headline,
            "spreads": {
                name: {figure: asdict(spread) for figure, spread in spreads(each).items()}
                for name, each in runs.items()
            },
            "lakemark_is_faster": {name: asdict(spread) for name, spread in faster.items()},
            "runs": {name: [asdict(figures) for figures in each] for name, each in runs.items()},
            "batches_s": {
                name: [durations_s(answer) for answer in answers]
                for name, answers in self.outcome.answers.items()
            },
            "not_run": self.outcome.refusals,
            "failed": self.outcome.failures,
        }

    def as_lines(self) -> Iterator[str]:
        """Render the figures as Markdown."""
        measured = self.workload.phases[-1]
        yield f"## `{self.name}`"
        yield ""
        size = f"{measured.records:,} records in batches of {measured.batch:,}"
        yield f"{size}: {self.workload.about}."
        yield f"The last column compares `{_TITLES[self.headline]}`."
        yield ""
        yield from table([("", *_TITLES.values(), "lakemark is faster"), *self._rows()])
        yield ""
        for name, reason in self.outcome.refusals.items():
            yield f"- `{name}` did not run: it {reason}."
        for name, reason in self.outcome.failures.items():
            yield f"- `{name}` failed: {reason.strip()[-_MOST_CHARACTERS:]!r}"

    def _rows(self) -> Iterator[tuple[str, ...]]:
        runs = self.runs
        faster = ratios(runs, LAKEMARK, self.headline)
        for name, each in runs.items():
            found = spreads(each)
            cells = (cell(figure, found.get(figure)) for figure in _TITLES)
            yield (name, *cells, with_range(faster.get(name), "{:,.2f}"))


def overview(reports: Iterable[WorkloadReport]) -> list[str]:
    """Render the headline of every workload as one table, in records/s or seconds."""
    reports = list(reports)
    engines = list(dict.fromkeys(name for report in reports for name in report.runs))
    rows = [("", *engines)]
    for report in reports:
        found = {name: spreads(each).get(report.headline) for name, each in report.runs.items()}
        medians = (found.get(name) for name in engines)
        cells = ("" if one is None else shown(report.headline, one.median) for one in medians)
        rows.append((report.name, *cells))
    return ["## All workloads", "", *table(rows)]


def facts(machine: Mapping[str, object]) -> list[str]:
    """Render the machine and the versions as a list."""
    return [f"- {name.replace('_', ' ')}: {value}" for name, value in machine.items()]


def table(rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Render rows as a Markdown table; the first row is the heading."""
    heading, *others = rows
    yield f"| {' | '.join(heading)} |"
    yield "|" + "---|" * len(heading)
    for row in others:
        yield f"| {' | '.join(row)} |"


def cell(figure: str, spread: Spread | None) -> str:
    """Render a figure: its median and, in parentheses, its smallest and largest value."""
    return with_range(spread, "{:,.2f} s" if figure.endswith("batch_s") else "{:,.0f}")


def shown(figure: str, value: float) -> str:
    """Render one value of a figure."""
    return cell(figure, Spread(value, value, value))


def with_range(spread: Spread | None, form: str) -> str:
    """Render a median with its spread; the range is omitted if all values are equal."""
    if spread is None:
        return ""
    middle, low, high = map(form.format, (spread.median, spread.low, spread.high))
    return middle if low == high else f"{middle} ({low} to {high})"
