"""The environment of processes whose JVM lives for seconds or a few minutes."""

from __future__ import annotations

import os
from collections.abc import Mapping

#: Options of a JVM that ends soon.
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def short_lived() -> Mapping[str, str]:
    """Return an environment for JVMs that end before they would run faster.

    The JVM does not use its slower, optimising compiler. Runs of a few seconds then use half of the
    CPU time. The session that tests share also does, because it runs most of its code only a few
    times. Two files of tests with many small requests to Apache Hudi take 138 s in this way, and
    took 166 and 190 s without it.

    The simplest collector needs the least CPU time for a small heap.
    """
    return {**os.environ, "SPARK_SUBMIT_OPTS": " ".join(SHORT_LIVED)}
