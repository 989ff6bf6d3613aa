"""The limits of a container, as Linux shows them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lakemark.execution.limits import usable_cores, usable_memory_bytes

ALL_CORES = len(os.sched_getaffinity(0))
MACHINE = usable_memory_bytes(Path("/nowhere"))


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, ALL_CORES),
        ({"cpu.max": "max 100000"}, ALL_CORES),
        ({"cpu.max": "50000 100000"}, 0.5),
        ({"cpu.max": "99900000 100000"}, ALL_CORES),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, ALL_CORES),
        ({"cpu/cpu.cfs_quota_us": "25000", "cpu/cpu.cfs_period_us": "100000"}, 0.25),
        ({"cpu.max": "garbled"}, ALL_CORES),
    ],
)
def test_cores_are_those_of_the_container(
    files: dict[str, str], cores: float, tmp_path: Path
) -> None:
    write(tmp_path, files)
    assert usable_cores(tmp_path) == cores


def test_cores_are_those_that_the_process_may_run_on(tmp_path: Path) -> None:
    own = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(own)})
        assert usable_cores(tmp_path) == 1
    finally:
        os.sched_setaffinity(0, own)


@pytest.mark.parametrize(
    ("files", "limit_bytes"),
    [
        ({}, MACHINE),
        ({"memory.max": "max"}, MACHINE),
        ({"memory.max": "1048576\n"}, 1 << 20),
        ({"memory/memory.limit_in_bytes": "2097152"}, 2 << 20),
        ({"memory/memory.limit_in_bytes": "9223372036854771712"}, MACHINE),
    ],
)
def test_memory_is_that_of_the_container(
    files: dict[str, str], limit_bytes: int, tmp_path: Path
) -> None:
    write(tmp_path, files)
    assert usable_memory_bytes(tmp_path) == limit_bytes


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
