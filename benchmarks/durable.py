"""Measures commits to a local disk that force their files to the disk, and commits that do not.

``python -m benchmarks.durable [--times N] [--rows N] [--folder FOLDER]``
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from statistics import median
from unittest.mock import patch

from lakemark.storage import StorageLocation, open_storage
from tests.tables import Row, commit, make, writer

#: How many commits are not measured, so that neither table is new.
_FIRST = 3

#: Longer than a folder counts as recently changed (``lakemark/storage/durability.py``).
_SETTLE_S = 2.5


class _Table:
    """A table with a metadata table, and the durations of its commits.

    Args:
        path: the path of the table, which must not exist.
        is_forced: whether its files are forced to the disk.
    """

    def __init__(self, path: Path, *, is_forced: bool) -> None:
        storage = open_storage(StorageLocation(str(path)))
        make(storage)
        self._writer = writer(storage)
        self._force = os.fsync if is_forced else _not_forced
        self.seconds: list[float] = []
        self.forced = 0

    def commit(self, number: int, rows: int) -> None:
        """Upsert the same keys again."""
        changed = [Row(f"k{key}", number, number) for key in range(rows)]
        with patch("os.fsync", self._fsync):
            began = time.perf_counter()
            commit(self._writer, changed)
            self.seconds.append(time.perf_counter() - began)

    def forget_first(self) -> None:
        """Drop the measurements so far."""
        self.seconds.clear()
        self.forced = 0

    def _fsync(self, descriptor: int) -> None:
        self.forced += 1
        self._force(descriptor)


def _not_forced(descriptor: int) -> None:
    """Do nothing, in place of ``os.fsync``: the system writes the file when it likes."""


def _measure(folder: Path, times: int, rows: int) -> list[_Table]:
    kinds = (("forced", True), ("not-forced", False))
    tables = [_Table(folder / name, is_forced=is_forced) for name, is_forced in kinds]
    for number in range(_FIRST + times):
        if number == _FIRST:
            time.sleep(_SETTLE_S)
            for table in tables:
                table.forget_first()
        for table in tables if number % 2 else reversed(tables):
            table.commit(number, rows)
    return tables


def main() -> None:
    """Print the medians, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=40)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--folder", type=Path, help="on the disk to measure")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        tables = _measure(Path(folder), arguments.times, arguments.rows)
    print("| | commit | calls of fsync |\n|---|---|---|")
    for kind, table in zip(("forced", "not forced"), tables, strict=True):
        calls = table.forced / arguments.times if kind == "forced" else 0
        print(f"| {kind} | {median(table.seconds) * 1e3:.0f} ms | {calls:.1f} |")
    forced, not_forced = (median(table.seconds) for table in tables)
    print(f"| ratio | {forced / not_forced:.2f} | |")


if __name__ == "__main__":
    main()
