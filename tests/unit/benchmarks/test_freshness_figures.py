"""The figures of the freshness benchmark: percentiles, minutes, and CPU time of a process tree."""

from __future__ import annotations

import subprocess
import sys
import time

from benchmarks.cpu_time import cpu_time_s
from benchmarks.freshness_figures import Freshness, Sent, Spread, as_lines


def test_freshness_is_the_time_from_sending_to_visibility() -> None:
    records = [Sent(100.0 + n, 100.0 + n + 1) for n in range(99)] + [Sent(199.0, 210.0)]
    figures = Freshness.of(records, 100.0, 30.0, 2.0)
    assert (figures.whole.p50_s, figures.whole.max_s) == (1.0, 11.0)
    assert 1.0 < figures.whole.p99_s < 11.0
    assert figures.by_minute == (Spread(1.0, 1.0, 1.0), Spread.of(records[60:]))
    assert figures.commits == 100


def test_report_has_a_line_for_each_engine_and_for_its_minutes() -> None:
    figures = Freshness.of([Sent(0.0, 0.5), Sent(61.0, 62.5)], 0.0, 30.0, 2.0)
    lines = list(as_lines({"ours": figures, "theirs": figures}))
    assert lines[1].split() == ["ours", *"1.00 s 1.49 s 1.50 s 30.00 s 2.00 s 2".split()]
    assert lines[-1].split(", ")[0].strip() == "0.50 / 0.50 s"


def test_cpu_time_includes_descendants() -> None:
    inner = "import time; s = time.process_time()\nwhile time.process_time() - s < 0.5: pass"
    code = f"import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-c', {inner!r}])"
    with subprocess.Popen([sys.executable, "-c", f"{code}; time.sleep(60)"]) as process:
        ends = time.monotonic() + 60
        while cpu_time_s(process.pid) < 0.5 and time.monotonic() < ends:
            time.sleep(0.05)
        used_s = cpu_time_s(process.pid)
        process.kill()
    assert used_s >= 0.5
