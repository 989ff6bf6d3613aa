"""The floor of a merge: Arrow sorts the rows of a slice in memory, and selects the winners.

The time includes no reading, checking or writing, only the least that a merge by sorting needs.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.orders import KEY, ORDERING
from benchmarks.peers.change_contract import ChangeTask
from benchmarks.peers.read_contract import ReadAnswer, Sums, change_each, peak_memory_bytes
from benchmarks.tables import sums
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.operations.open_table import open_table
from lakemark.read.queries import ReadOptimized
from lakemark.storage import StorageLocation

_ORDER = [(KEY, "ascending"), (ORDERING, "ascending")]


def main() -> None:
    task = ChangeTask.from_json(Path(sys.argv[1]).read_text())
    rows = _rows(task.tables[0])
    merged: list[pa.Table] = []

    def merge(path: str) -> None:
        merged[:] = [_winners(rows)]

    reading = change_each(task.name, task.tables, merge, lambda path: _sums(merged), os.getpid())
    ReadAnswer((reading,), peak_memory_bytes(os.getpid())).write(Path(task.answer_path))


def _rows(path: str) -> pa.Table:
    """Read the rows of the base file and the logs, one after the other."""
    table = open_table(StorageLocation(path))
    (file_slice,) = table.view().latest_slices()
    reader = table.scan().reader
    base = table.scan(ReadOptimized()).to_reader().read_all()
    changes = [each.select(base.column_names) for each in reader.read_changes(file_slice)]
    return pa.concat_tables([base, *changes])


def _winners(rows: pa.Table) -> pa.Table:
    order = pc.sort_indices(rows, sort_keys=_ORDER)
    keys = rows.column(RECORD_KEY).take(order)
    is_last = np.ones(len(keys), np.bool_)
    is_last[:-1] = np.asarray(pc.not_equal(keys.slice(0, len(keys) - 1), keys.slice(1)))
    return rows.take(order.filter(pa.array(is_last)))


def _sums(merged: list[pa.Table]) -> Sums:
    (rows,) = merged
    return sums(rows.to_batches())


if __name__ == "__main__":
    main()
