"""Reads the changes of one commit with all deletes before all other changes.

A commit may delete a record key in one file group and insert it in another: an update that moves a
row to another partition does, and so does an overwrite. A program that applies the changes by their
key in the order of this module keeps the row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from tempfile import SpooledTemporaryFile
from typing import IO, cast

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.read.cdc.changes import DELETE
from lakemark.read.cdc.plan import ChangeSplit, Inference
from lakemark.read.cdc.scan import CdcScan
from lakemark.storage.scratch import temporary_writes

#: Changes that wait are kept in memory up to this size, and beyond in the temporary folder.
_IN_MEMORY_BYTES = 64 << 20


def read_deletes_first(scan: CdcScan) -> Iterator[pa.RecordBatch]:
    """Yield the changes of one commit; no batch is empty.

    Args:
        scan: the changes of one commit.

    Raises:
        DiskFull: the disk of the temporary folder is full.
        HudiError: as for ``CdcScan.batches``.
    """
    mixed = [split for split in scan.plan.splits if _may_delete(split)]
    inserting = [split for split in scan.plan.splits if not _may_delete(split)]
    with _Waiting.opened(scan.schema) as waiting:
        for batch in scan.read(mixed):
            is_delete = pc.equal(batch.column("op"), DELETE)
            waiting.add(batch.filter(pc.invert(is_delete)))
            yield from _without_empty([batch.filter(is_delete)])
        yield from waiting.read()
    yield from scan.read(inserting)


def _may_delete(split: ChangeSplit) -> bool:
    return split.inference is not Inference.BASE_FILE_INSERT


def _without_empty(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return (batch for batch in batches if batch.num_rows)


class _Waiting:
    """Changes that are read after others."""

    def __init__(self, spool: IO[bytes], schema: pa.Schema) -> None:
        self._spool, self._schema = spool, schema
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None

    @classmethod
    @contextmanager
    def opened(cls, schema: pa.Schema) -> Iterator[_Waiting]:
        """Open an empty store of changes, which is removed at the end of the block."""
        with SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES) as spool:
            yield cls(cast(IO[bytes], spool), schema)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add changes."""
        if batch.num_rows == 0:
            return
        with temporary_writes("changes of a commit"):
            if self._writer is None:
                self._writer = pa.ipc.new_stream(self._spool, self._schema)
            self._writer.write_batch(batch)

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes in the order in which they were added; no more may be added."""
        if self._writer is None:
            return
        with temporary_writes("changes of a commit"):
            self._writer.close()
            self._spool.seek(0)
        yield from pa.ipc.open_stream(self._spool)
