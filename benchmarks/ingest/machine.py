"""What a report says about the machine and the versions that were measured."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version

from benchmarks.engines import ROOT, machine
from benchmarks.ingest.engines import ENGINES
from benchmarks.peers.merge_stream import FORMATS
from streamer.toolchain import find_java
from streamer.toolchain.jars import KAFKA_VERSION
from tests.interop.oracle import oracle_python
from tests.interop.oracle_server import HUDI_COORDINATE

_GIB = 1 << 30


def describe(engines: Iterable[str]) -> dict[str, object]:
    """Describe the run: its command, the machine with its load, and the versions."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "command": shlex.join(["python", "-m", "benchmarks.ingest", *sys.argv[1:]]),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        **machine(),
        "memory": f"{memory / _GIB:.0f} GiB",
        "load_before_the_run": f"{os.getloadavg()[1]:.2f}",
        "java": find_java().version,
        "lakemark": _commit(),
        "spark": _spark_versions(engines),
        "kafka": KAFKA_VERSION,
        "peers": ", ".join([HUDI_COORDINATE, *(one.coordinate for one in FORMATS.values())]),
    }


def _spark_versions(engines: Iterable[str]) -> str:
    versions = [version("pyspark")]
    if any(ENGINES[name].engine.on_spark35 for name in engines):
        ask = "from importlib.metadata import version; print(version('pyspark'), end='')"
        versions.append(_output(str(oracle_python()), "-c", ask))
    return " and ".join(versions)


def _commit() -> str:
    """Return the commit of the working copy, if it is one."""
    try:
        return _output("git", "describe", "--always", "--dirty").strip()
    except (OSError, subprocess.CalledProcessError):
        return version("lakemark")


def _output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
