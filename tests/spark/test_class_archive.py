"""The JVM of a session loads Spark's classes from their archive."""

from __future__ import annotations

import subprocess
import sys

import pytest

from streamer.class_archive import make
from streamer.toolchain import find_java, find_spark
from tests.short_lived import short_lived

pytestmark = pytest.mark.spark

#: Prints the files that the JVM of a new session has mapped, and ends.
_MAPPED = """
from pathlib import Path
from pyspark import SparkContext
from streamer.session import plain_session
session = plain_session("mapped")
print(Path("/proc", str(SparkContext._gateway.proc.pid), "maps").read_text())
session.stop()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="what a process has mapped is in Linux's /proc")
def test_session_maps_the_class_archive() -> None:
    archive = make(find_java(), find_spark())
    assert archive is not None
    output = subprocess.run(
        [sys.executable, "-c", _MAPPED],
        env=short_lived(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(archive) in output.stdout
