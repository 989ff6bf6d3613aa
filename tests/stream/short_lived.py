"""The environment of runs that live for seconds."""

from __future__ import annotations

import os
from collections.abc import Mapping


def short_lived() -> Mapping[str, str]:
    """Their JVM does without the compiler that pays only after a while: half of their CPU."""
    return {**os.environ, "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1"}
