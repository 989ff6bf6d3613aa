"""Reads a commit's changes in a file group: the operation, the time, and the record images.

The columns are those of Apache Hudi 1.2.0 on Spark: ``op`` (i, u or d), ``ts_ms`` (the instant of
the commit), ``before`` and ``after`` (JSON, see ``image_text``). Source: ``CDCFileGroupIterator``.

A log is compared with the earlier rows of its file group. A delete in the log always applies,
whatever its ordering value. An upsert that is older than the current row (by ordering value)
changes nothing. But an upsert of a key without a row is an insert, even if it is older than an
earlier delete of the key, so that a snapshot query does not return it. Apache Hudi does the same in
all three cases, because ``beforeImageRecords`` contains rows only, and because it merges only
upserts with them (``loadNextLogRecord``).

Only the changes of one commit in one file group are held in memory; the rows of the earlier state
are streamed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.config.table_properties import LoggingMode
from lakemark.errors import CorruptData, Unsupported
from lakemark.merge.change_index import ChangeIndex
from lakemark.merge.partial_update.missing_columns import partial_update_for
from lakemark.model.changes import CHANGE_COLUMNS, CHANGE_KIND, ChangeKind
from lakemark.model.file_slice import FileSlice
from lakemark.model.meta_columns import COMMIT_SEQNO, COMMIT_TIME, RECORD_KEY
from lakemark.read.cdc.image_text import AVRO, JACKSON
from lakemark.read.cdc.logged_changes import read_logged_changes
from lakemark.read.cdc.plan import CdcPlan, ChangeSplit, Inference
from lakemark.read.file_group_reader import FileGroupReader
from lakemark.read.row_filter import filter_keys

SCHEMA = pa.schema([(name, pa.string()) for name in ("op", "ts_ms", "before", "after")])

INSERT, UPDATE, DELETE = "i", "u", "d"

#: Rows converted to text at a time, because a string column is limited to 2 GB.
_BATCH_ROWS = 1 << 14


def read(plan: CdcPlan, reader: FileGroupReader) -> Iterator[pa.RecordBatch]:
    """Yield the changes, split by split, with the columns of ``SCHEMA``; no batch is empty.

    Args:
        plan: the plan of the query.
        reader: reader of the table.

    Raises:
        SnapshotChanged: a file was removed after the plan was made; plan the query again.
        CorruptData: bytes violate the format.
        Unsupported: lakemark does not read this kind of file or block, or the rows of the table do
            not contain record keys.
    """
    if RECORD_KEY not in reader.schema.names:
        message = f"a CDC query requires rows with {RECORD_KEY}, which this table does not have"
        raise Unsupported(message)
    for split in plan.splits:
        changes = _SplitChanges(split, plan.mode, replace(reader, is_visible=split.visible))
        yield from (batch for batch in changes.read() if batch.num_rows)


@dataclass(frozen=True, slots=True)
class _SplitChanges:
    split: ChangeSplit
    mode: LoggingMode
    reader: FileGroupReader

    def read(self) -> Iterator[pa.RecordBatch]:
        match self.split.inference:
            case Inference.AS_IS:
                yield from self._logged()
            case Inference.BASE_FILE_INSERT:
                for images in self._read_images(self.split.after):
                    yield self._make_batch(INSERT, after=images)
            case Inference.BASE_FILE_DELETE | Inference.REPLACE_COMMIT:
                for images in self._read_images(self.split.before):
                    yield self._make_batch(DELETE, before=images)
            case Inference.LOG_FILE:
                yield from self._infer_from_log()

    def _infer_from_log(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes of a log, compared with the state before it."""
        log = FileSlice(self.split.group, self.split.instant, None, self.split.logs)
        own = replace(self.reader, is_visible=_OnlyInstant(self.split.instant))
        arrived = list(own.read_changes(log))
        if not arrived:
            return
        changes = self.reader.merger.fold(pa.concat_tables(arrived))
        is_upsert = changes.column(CHANGE_KIND).to_numpy() == ChangeKind.UPSERT
        upserts, deletes = changes.filter(pa.array(is_upsert)), changes.filter(pa.array(~is_upsert))
        index = ChangeIndex(upserts, self.reader.merger)
        for rows in self._read_before():
            for images in _print_images(filter_keys(rows, deletes.column(RECORD_KEY))):
                yield self._make_batch(DELETE, before=images)
            yield from self._infer_updates(
                filter_keys(rows, upserts.column(RECORD_KEY)), index, upserts
            )
        columns = [name for name in changes.column_names if name not in CHANGE_COLUMNS]
        for images in _print_images(index.insert_unmatched(columns).rows):
            yield self._make_batch(INSERT, after=images)

    def _infer_updates(
        self, older: pa.Table, index: ChangeIndex, upserts: pa.Table
    ) -> Iterator[pa.RecordBatch]:
        """Yield the changes that upserts make to existing rows with the same keys."""
        newer = index.merge(older).rows
        if newer.num_rows < older.num_rows:  # A custom merger may turn an upsert into a delete.
            survives = pc.is_in(
                older.column(RECORD_KEY), value_set=newer.column(RECORD_KEY).combine_chunks()
            )
            for images in _print_images(older.filter(pc.invert(survives))):
                yield self._make_batch(DELETE, before=images)
            older = older.filter(survives)
        fills = partial_update_for(upserts, self.reader.merger.partial_update) is not None
        compared = older.column_names if fills else [COMMIT_TIME, COMMIT_SEQNO]
        changed = _find_differences(older.select(compared), newer.select(compared))
        printed = zip(
            _print_images(older.filter(changed)), _print_images(newer.filter(changed)), strict=True
        )
        for before, after in printed:
            yield self._make_batch(UPDATE, before, after)

    def _logged(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes that the writer logged in ``.cdc`` files."""
        changes = read_logged_changes(self.reader.storage, self.split.logs, self.mode)
        if self.mode is LoggingMode.DATA_BEFORE_AFTER:
            for logged in _in_pieces(changes):
                yield self._make_batch(
                    logged.column("op"),
                    _logged_text(logged, "before"),
                    _logged_text(logged, "after"),
                )
        else:
            yield from self._complete_images(changes)

    def _complete_images(self, changes: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield the logged changes; images that were not logged are read from data files."""
        keys = changes.column("record_key")
        older, newer = (self._read_rows(keys, s) for s in (self.split.before, self.split.after))
        for logged in _in_pieces(changes):
            op, keys = logged.column("op"), logged.column("record_key")
            after = self._find_images(keys, newer, pc.not_equal(op, DELETE))
            if self.mode is LoggingMode.DATA_BEFORE:
                yield self._make_batch(op, _logged_text(logged, "before"), after)
            else:
                yield self._make_batch(
                    op, self._find_images(keys, older, pc.not_equal(op, INSERT)), after
                )

    def _read_rows(self, keys: pa.ChunkedArray, state: FileSlice | None) -> pa.Table:
        rows = [] if state is None else [filter_keys(r, keys) for r in self.reader.read(state)]
        return pa.concat_tables([self.reader.schema.empty_table(), *rows])

    def _find_images(self, keys: pa.Array, rows: pa.Table, is_there: pa.Array) -> pa.Array:
        """Return the image of the record with each key; null where ``is_there`` is false.

        Raises:
            CorruptData: there is no row for a key where ``is_there`` is true.
        """
        positions = pc.index_in(keys, value_set=rows.column(RECORD_KEY).combine_chunks())
        missing = keys.filter(pc.and_(is_there, positions.is_null()))
        if len(missing):
            path = self.split.logs[0].path
            raise CorruptData(path, None, "changes of records in its file group", str(missing[0]))
        texts = JACKSON.text(_records(rows.take(positions)))
        return pc.if_else(is_there, texts, None)

    def _read_images(self, state: FileSlice | None) -> Iterator[pa.Array]:
        """Yield the images of all rows of a state."""
        if state is not None:
            for rows in self.reader.read(state):
                yield from _print_images(rows)

    def _read_before(self) -> Iterator[pa.Table]:
        if self.split.before is not None:
            yield from self.reader.read(self.split.before)

    def _make_batch(
        self,
        op: pa.Array | str,
        before: pa.Array | None = None,
        after: pa.Array | None = None,
    ) -> pa.RecordBatch:
        images = before if before is not None else after
        assert images is not None, self.split
        count = len(images)
        columns = [
            pa.repeat(pa.scalar(op), count) if isinstance(op, str) else op,
            pa.repeat(pa.scalar(self.split.instant), count),
            pa.nulls(count, pa.string()) if before is None else before,
            pa.nulls(count, pa.string()) if after is None else after,
        ]
        return pa.record_batch(columns, schema=SCHEMA)


@dataclass(frozen=True, slots=True)
class _OnlyInstant:
    """Makes only blocks of one commit visible; in table version 6 a log may have other blocks."""

    instant: str

    def __call__(self, instant: str) -> bool:
        return instant == self.instant


def _print_images(rows: pa.Table) -> Iterator[pa.Array]:
    """Yield the images of rows, in batches."""
    for batch in _in_pieces(rows):
        yield JACKSON.text(_records(batch))


def _in_pieces(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    return iter(rows.combine_chunks().to_batches(_BATCH_ROWS))


def _records(rows: pa.RecordBatch | pa.Table) -> pa.StructArray:
    whole = rows.combine_chunks().to_batches() if isinstance(rows, pa.Table) else [rows]
    return pa.concat_arrays([batch.to_struct_array() for batch in whole])


def _logged_text(changes: pa.RecordBatch, column: str) -> pa.Array:
    """Return records as Avro prints them; a missing record becomes the text ``null``."""
    return pc.fill_null(AVRO.text(changes.column(column)), "null")


def _find_differences(older: pa.Table, newer: pa.Table) -> pa.Array:
    """Return for each row of the two tables whether they differ in any column."""
    differ: npt.NDArray[np.bool_] = np.zeros(older.num_rows, np.bool_)
    for before, after in zip(older.columns, newer.columns, strict=True):
        left, right = (_comparable(column.combine_chunks()) for column in (before, after))
        same = pc.fill_null(pc.equal(left, right), fill_value=False)
        both_null = pc.and_(left.is_null(), right.is_null())
        differ |= ~np.asarray(pc.or_(same, both_null))
    return pa.array(differ)


def _comparable(values: pa.Array) -> pa.Array:
    return AVRO.text(values) if pa.types.is_nested(values.type) else values
