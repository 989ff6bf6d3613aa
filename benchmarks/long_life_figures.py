"""The report of a table's life: costs at its checkpoints, compared with those of a young table."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import TypeVar

from benchmarks.engines import machine
from tests.storages import CountingStorage

T = TypeVar("T")

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Cost:
    """The costs of one step.

    Attributes:
        wall_s: elapsed time, which includes other work of the machine.
        cpu_s: processor time of all threads of this process.
        requests: requests to storage.
        listings: the requests that list a folder outside of ``.hoodie``.
    """

    wall_s: float
    cpu_s: float
    requests: int
    listings: int = 0


class Meter:
    """Measures steps on one storage.

    Args:
        storage: counts the requests.
    """

    def __init__(self, storage: CountingStorage) -> None:
        self._storage = storage

    def measure(self, step: Callable[[], T]) -> tuple[T, Cost]:
        """Run a step, and return its result and its costs."""
        self._storage.forget()
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        given = step()
        wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
        requests = self._storage.requests
        listings = [
            request
            for request in requests
            if request.method.startswith("list") and not request.path.startswith(".hoodie")
        ]
        return given, Cost(wall_s, cpu_s, len(requests), len(listings))


@dataclass(frozen=True, slots=True)
class StepFigures:
    """The costs of a step that was measured many times; seconds are medians, except the means."""

    wall_s: float
    mean_wall_s: float
    cpu_s: float
    mean_cpu_s: float
    requests: float
    listings: int

    @classmethod
    def of(cls, costs: Sequence[Cost]) -> StepFigures:
        """Compute the figures of these measurements."""
        return cls(
            wall_s=median(cost.wall_s for cost in costs),
            mean_wall_s=mean(cost.wall_s for cost in costs),
            cpu_s=median(cost.cpu_s for cost in costs),
            mean_cpu_s=mean(cost.cpu_s for cost in costs),
            requests=mean(cost.requests for cost in costs),
            listings=sum(cost.listings for cost in costs),
        )


@dataclass(frozen=True, slots=True)
class Holding:
    """The number and the size of the files of a folder."""

    files: int
    size_bytes: int

    @classmethod
    def of(cls, folder: Path, without: Iterable[str] = ()) -> Holding:
        """Count all files below a folder, without its direct subfolders of these names."""
        found = [
            path.stat().st_size
            for child in folder.iterdir()
            if child.name not in set(without)
            for path in (child.rglob("*") if child.is_dir() else [child])
            if path.is_file()
        ]
        return cls(len(found), sum(found))


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A table after so many commits.

    Attributes:
        commits: how many commits it has.
        steps: the costs of each step at that time.
        compared: the costs of each step on the table that it is compared with.
        holdings: the files of its folders.
        memory_bytes: the memory of the process.
    """

    commits: int
    steps: Mapping[str, StepFigures]
    compared: Mapping[str, StepFigures]
    holdings: Mapping[str, Holding]
    memory_bytes: int


@dataclass
class Window:
    """The costs of consecutive commits: enough that the mean includes services that run rarely."""

    costs: dict[str, list[Cost]] = field(default_factory=dict)

    def note(self, step: str, cost: Cost) -> None:
        """Add the costs of a step."""
        self.costs.setdefault(step, []).append(cost)

    def figures(self) -> dict[str, StepFigures]:
        """Compute the figures of every step."""
        return {step: StepFigures.of(costs) for step, costs in self.costs.items()}


def memory_bytes() -> int:
    """Return the memory that this process uses now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def growth(checkpoint: Checkpoint) -> dict[str, dict[str, float]]:
    """Compute the ratio of each step's costs to those of the table that it is compared with."""
    return {
        step: {
            name: getattr(checkpoint.steps[step], name) / getattr(figures, name)
            for name in ("wall_s", "mean_wall_s", "cpu_s", "mean_cpu_s", "requests")
            if getattr(figures, name)
        }
        for step, figures in checkpoint.compared.items()
    }


def report(checkpoints: Sequence[Checkpoint], settings: Mapping[str, object]) -> dict[str, object]:
    """Return the figures of a group for the JSON report."""
    return {
        "machine": machine(),
        "settings": dict(settings),
        "checkpoints": [asdict(each) for each in checkpoints],
        "growth": [growth(each) for each in checkpoints],
    }


def as_lines(checkpoint: Checkpoint) -> list[str]:
    """Render a checkpoint as a table."""
    lines = [
        f"{f'after {checkpoint.commits:,} commits':27}{'wall':>10}{'mean':>10}{'CPU':>10}"
        f"{'mean':>10}{'requests':>10}{'wall':>9}{'CPU':>8}{'mean':>8}"
    ]
    ratios = growth(checkpoint)
    for name, step in checkpoint.steps.items():
        ratio = ratios[name]
        lines.append(
            f"  {name:25}{step.wall_s * 1e3:7.1f} ms{step.mean_wall_s * 1e3:7.1f} ms"
            f"{step.cpu_s * 1e3:7.1f} ms{step.mean_cpu_s * 1e3:7.1f} ms{step.requests:10.1f}"
            f"{ratio['wall_s']:8.2f}x{ratio['cpu_s']:7.2f}x{ratio['mean_cpu_s']:7.2f}x"
        )
    for name, holding in checkpoint.holdings.items():
        lines.append(f"  {name:25}{holding.files:7,} files{holding.size_bytes / _MIB:9.2f} MiB")
    return [*lines, f"  {'memory':25}{checkpoint.memory_bytes / _MIB:7.0f} MiB"]
