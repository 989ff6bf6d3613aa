"""Measures a start of Spark with the archive of its classes, and without it.

``python -m benchmarks.start [--times N]``
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from streamer.class_archive import make
from streamer.toolchain import cache_home, find_java, find_spark

_KINDS = ("archive", "none")

#: A program that starts Spark, runs a query, and prints elapsed and processor seconds.
_START = """
import json, os, time
began = time.monotonic()
from pyspark import SparkContext
from streamer.session import plain_session
plain_session("start").range(10).collect()
seconds = time.monotonic() - began
stat = open(f"/proc/{SparkContext._gateway.proc.pid}/stat").read().rpartition(")")[2].split()
ticks = int(stat[11]) + int(stat[12])
print(json.dumps([seconds, ticks / os.sysconf("SC_CLK_TCK")]), flush=True)
os._exit(0)
"""


@dataclass(frozen=True)
class Start:
    """The times of one start.

    Attributes:
        seconds: elapsed time until the first answer.
        cpu_seconds: processor time of Spark's JVM until then.
    """

    seconds: float
    cpu_seconds: float


def _start(home: Path) -> Start:
    environment = {**os.environ, "LAKEMARK_HOME": str(home)}
    command = [sys.executable, "-c", _START]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    return Start(*json.loads(done.stdout))


def main() -> None:
    """Print the medians, and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=7)
    times = parser.parse_args().times
    make(find_java(), find_spark())
    starts: dict[str, list[Start]] = {kind: [] for kind in _KINDS}
    with tempfile.TemporaryDirectory() as bare:
        (Path(bare) / "jars").symlink_to(cache_home() / "jars")  # only the archive is missing
        for _ in range(times):
            starts["archive"].append(_start(cache_home()))
            starts["none"].append(_start(Path(bare)))
    print("| | first answer | CPU of the JVM |\n|---|---|---|")
    medians = [
        (median(s.seconds for s in one), median(s.cpu_seconds for s in one))
        for one in starts.values()
    ]
    for kind, (seconds, cpu_s) in zip(_KINDS, medians, strict=True):
        print(f"| {kind} | {seconds:.1f} s | {cpu_s:.1f} s |")
    ratios = [with_it / without for with_it, without in zip(*medians, strict=True)]
    print(f"| ratio | {ratios[0]:.2f} | {ratios[1]:.2f} |")


if __name__ == "__main__":
    main()
