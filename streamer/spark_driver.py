"""Who starts Spark's driver, and how large its heap is. This module does not import Spark."""

from __future__ import annotations

import os
import re
from typing import Final

from lakemark.execution.limits import usable_memory_bytes

_GIB = 1024**3

#: Spark's property for the heap of the driver.
DRIVER_MEMORY: Final = "spark.driver.memory"

#: A size as Spark reads it (``JavaUtils.byteStringAsBytes``); without a unit, it is in MiB.
_SIZE = re.compile(r"(\d+)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_UNITS = {"k": 1 << 10, "": 1 << 20, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def is_submitted() -> bool:
    """Return whether ``spark-submit`` runs this process, and so sets master, memory and jars."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def driver_memory_bytes(machine_bytes: int) -> int:
    """Return a quarter of the machine's memory, but at least 1 GiB and at most 4 GiB.

    The rest is needed, because Arrow's memory is outside the heap.
    """
    return max(_GIB, min(4 * _GIB, machine_bytes // 4))


def given_driver_memory_bytes(given: str | None) -> int | None:
    """Return the size that a pipeline file sets for the driver's heap.

    Args:
        given: the value of ``spark.driver.memory``; None for lakemark's default.

    Returns:
        The size in bytes; None if Spark would not accept the value.
    """
    if given is None:
        return driver_memory_bytes(usable_memory_bytes())
    size = _SIZE.fullmatch(given.strip())
    return None if size is None else int(size[1]) * _UNITS[size[2].lower()]
