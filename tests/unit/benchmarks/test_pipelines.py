"""The figures of pipelines that run in turn: their steady state, processor time and ratios."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from benchmarks.pipelines import CpuSamples, Run, as_lines, run_of


def batch(second: int, records: int, rejects: int = 0) -> Mapping[str, Any]:
    time = datetime.fromtimestamp(second, UTC).isoformat()
    return {"time": time, "records_read": records, "rejects": rejects}


def samples() -> CpuSamples:
    found = CpuSamples()
    for at_s, used_s in ((0.0, 0.0), (10.0, 5.0), (20.0, 25.0), (30.0, 24.0)):
        found.add(at_s, used_s)
    return found


def test_steady_state_begins_after_the_first_batches() -> None:
    batches = [batch(5, 100), batch(10, 100), batch(15, 300), batch(20, 100)]
    run = run_of(batches, samples(), skip=2, records=600)
    assert run == Run(records=400, seconds=10.0, cpu_s=20.0)
    assert (run.records_per_s, run.cpu_us) == (40.0, 50_000.0)


def test_processor_time_of_a_process_that_has_ended_counts() -> None:
    assert samples().between(15.0, 30.0) == 10.0


@pytest.mark.parametrize(
    "batches",
    [
        [batch(5, 100), batch(10, 99)],
        [batch(5, 100), batch(10, 100, rejects=1)],
        [batch(5, 200)],
    ],
    ids=["record not read", "record rejected", "no steady state"],
)
def test_run_without_figures_fails(batches: list[Mapping[str, Any]]) -> None:
    with pytest.raises(RuntimeError, match="records were read in"):
        run_of(batches, samples(), skip=1, records=200)


def test_ratios_compare_runs_of_the_same_round() -> None:
    runs = {
        "base": [Run(100, 10.0, 10.0), Run(100, 20.0, 10.0)],
        "other": [Run(100, 20.0, 15.0), Run(100, 20.0, 30.0)],
    }
    assert list(as_lines(runs))[-1].split(" | ")[-2:] == [
        "0.75 (0.50 to 1.00)",
        "2.25 (1.50 to 3.00) |",
    ]
