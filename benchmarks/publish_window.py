"""Measures the time between the check of the lease and the publication, on a local disk.

``python -m benchmarks.publish_window [--times N] [--rows N] [--folder FOLDER]``

The time begins with the answer of ``Lease.check``, and ends with the call of ``os.link`` that
creates the completed instant. It is measured with one thread, and while another thread writes files
of the table, as an asynchronous compaction does.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median
from unittest.mock import patch

from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.timeline.locks.table_lock import Lease
from tests.tables import Row, commit, make, writer

_FILE_BYTES = 1 << 20


class _Window:
    """Measures how long after the check of the lease each commit was published.

    Args:
        root: the root of the table. Other calls publish its metadata table, without the lease.
    """

    def __init__(self, root: Path) -> None:
        self.seconds: list[float] = []
        self._prepared = f"{root}/.hoodie/.aux/prepared/"
        self._checked_at = 0.0
        self._check, self._link = Lease.check, os.link

    @contextmanager
    def observed(self) -> Iterator[None]:
        """Measure the commits within a block."""
        with patch.object(Lease, "check", self._checks()), patch("os.link", self._links):
            yield

    def _checks(self) -> object:
        def check(lease: Lease) -> None:
            self._check(lease)
            self._checked_at = time.perf_counter()

        return check

    def _links(self, source: str, target: str) -> None:
        called_at = time.perf_counter()
        self._link(source, target)
        if source.startswith(self._prepared):
            self.seconds.append(called_at - self._checked_at)


@contextmanager
def _writing(storage: Storage) -> Iterator[None]:
    """Write files of the table in another thread; no commit depends on them."""
    is_over = threading.Event()

    def write() -> None:
        number = 0
        while not is_over.wait(0.001):
            path, number = f"other/{number % 10}.parquet", number + 1
            storage.put(path, bytes(_FILE_BYTES), may_be_cut=True)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _measure(folder: Path, times: int, rows: int, *, is_shared: bool) -> list[float]:
    storage, window = open_storage(StorageLocation(str(folder))), _Window(folder)
    make(storage)
    to = writer(storage)
    with _writing(storage) if is_shared else nullcontext(), window.observed():
        for number in range(times):
            commit(to, [Row(f"k{key}", number, number) for key in range(rows)])
    return window.seconds


def main() -> None:
    """Print the medians and the maxima."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--folder", type=Path, help="on the disk to measure")
    arguments = parser.parse_args()
    print("| | commits | median | maximum |\n|---|---|---|---|")
    for kind, is_shared in (("one thread", False), ("another thread writes files", True)):
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            root = Path(folder).resolve() / "table"
            found = _measure(root, arguments.times, arguments.rows, is_shared=is_shared)
        print(f"| {kind} | {len(found)} | {_shown(median(found))} | {_shown(max(found))} |")


def _shown(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms"


if __name__ == "__main__":
    main()
