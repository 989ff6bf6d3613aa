"""Reads a commit's changes in a file group: the operation, and the record images.

A ``ChangeFormat`` decides the columns. Source: ``CDCFileGroupIterator`` of Apache Hudi 1.2.0.

There are two ways to compare a log with the earlier rows of its file group. Typed changes are the
differences between the rows before the commit and the rows after it, for the keys in the log. So a
late delete or a late upsert, which loses to a newer one, is no change. ``TextChanges`` are those of
Apache Hudi instead. A delete in the log then always applies, whatever its ordering value. An upsert
that is older than the current row changes nothing. But an upsert of a key without a row is an
insert, even if it is older than an earlier delete of the key. So these changes do not always lead
from one snapshot to the next. Apache Hudi does this because ``beforeImageRecords`` contains rows
only, and because it merges only upserts with them (``loadNextLogRecord``).

Several logs of a commit in one file group are compared as one. Apache Hudi compares each log, so a
key in two of them has two changes there.

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
from lakemark.read.cdc.change_format import ChangeFormat, Changes, TextChanges
from lakemark.read.cdc.image_text import AVRO
from lakemark.read.cdc.logged_changes import read_logged_changes
from lakemark.read.cdc.plan import CdcPlan, ChangeSplit, Inference
from lakemark.read.file_group_reader import FileGroupReader
from lakemark.read.row_filter import filter_keys

INSERT, UPDATE, DELETE = "i", "u", "d"

#: Rows converted to images at a time, because a string column is limited to 2 GB.
_BATCH_ROWS = 1 << 14

AS_TEXT = TextChanges()


def read(
    plan: CdcPlan, reader: FileGroupReader, form: ChangeFormat = AS_TEXT
) -> Iterator[pa.RecordBatch]:
    """Yield the changes, split by split; no batch is empty.

    Args:
        plan: the plan of the query.
        reader: reader of the table.
        form: the columns of the changes.

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
        changes = _SplitChanges(split, plan.mode, replace(reader, is_visible=split.visible), form)
        yield from (batch for batch in changes.read() if batch.num_rows)


@dataclass(frozen=True, slots=True)
class _SplitChanges:
    split: ChangeSplit
    mode: LoggingMode
    reader: FileGroupReader
    form: ChangeFormat

    def read(self) -> Iterator[pa.RecordBatch]:
        match self.split.inference:
            case Inference.AS_IS:
                yield from self._logged()
            case Inference.BASE_FILE_INSERT:
                for keys, images in self._read_images(self.split.after):
                    yield self._make_batch(INSERT, keys, after=images)
            case Inference.BASE_FILE_DELETE | Inference.REPLACE_COMMIT:
                for keys, images in self._read_images(self.split.before):
                    yield self._make_batch(DELETE, keys, before=images)
            case Inference.LOG_FILE if self.form.compares_states:
                yield from self._compare_states()
            case Inference.LOG_FILE:
                yield from self._infer_from_log()

    def _read_logs(self) -> list[pa.Table]:
        """Return what the commit wrote into its logs."""
        logs = FileSlice(self.split.group, self.split.instant, None, self.split.logs)
        own = replace(self.reader, is_visible=_OnlyInstant(self.split.instant))
        return list(own.read_changes(logs))

    def _compare_states(self) -> Iterator[pa.RecordBatch]:
        """Yield the differences between the rows before and after the logs, for their keys."""
        arrived = self._read_logs()
        if not arrived:
            return
        keys = pa.chunked_array([pa.concat_tables(arrived).column(RECORD_KEY).unique()])
        with_log = replace(self.reader, is_visible=self.split.visible_after)
        older = _read_rows(self.reader, keys, self.split.before)
        newer = _read_rows(with_log, keys, self.split.after)
        positions = pc.index_in(
            older.column(RECORD_KEY), value_set=newer.column(RECORD_KEY).combine_chunks()
        )
        remains = positions.is_valid()
        for batch_keys, images in self._images(older.filter(pc.invert(remains))):
            yield self._make_batch(DELETE, batch_keys, before=images)
        kept, current = older.filter(remains), newer.take(positions.drop_null())
        yield from self._updates(kept, current, _find_differences(kept, current))
        known = pc.is_in(
            newer.column(RECORD_KEY), value_set=older.column(RECORD_KEY).combine_chunks()
        )
        for batch_keys, images in self._images(newer.filter(pc.invert(known))):
            yield self._make_batch(INSERT, batch_keys, after=images)

    def _infer_from_log(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes of logs as Apache Hudi infers them from the rows before."""
        arrived = self._read_logs()
        if not arrived:
            return
        changes = self.reader.merger.fold(pa.concat_tables(arrived))
        is_upsert = changes.column(CHANGE_KIND).to_numpy() == ChangeKind.UPSERT
        upserts, deletes = changes.filter(pa.array(is_upsert)), changes.filter(pa.array(~is_upsert))
        index = ChangeIndex(upserts, self.reader.merger)
        for rows in self._read_before():
            for keys, images in self._images(filter_keys(rows, deletes.column(RECORD_KEY))):
                yield self._make_batch(DELETE, keys, before=images)
            yield from self._infer_updates(
                filter_keys(rows, upserts.column(RECORD_KEY)), index, upserts
            )
        columns = [name for name in changes.column_names if name not in CHANGE_COLUMNS]
        for keys, images in self._images(index.insert_unmatched(columns).rows):
            yield self._make_batch(INSERT, keys, after=images)

    def _infer_updates(
        self, older: pa.Table, index: ChangeIndex, upserts: pa.Table
    ) -> Iterator[pa.RecordBatch]:
        """Yield the changes that upserts make to existing rows with the same keys."""
        newer = index.merge(older).rows
        if newer.num_rows < older.num_rows:  # A custom merger may turn an upsert into a delete.
            survives = pc.is_in(
                older.column(RECORD_KEY), value_set=newer.column(RECORD_KEY).combine_chunks()
            )
            for keys, images in self._images(older.filter(pc.invert(survives))):
                yield self._make_batch(DELETE, keys, before=images)
            older = older.filter(survives)
        fills = partial_update_for(upserts, self.reader.merger.partial_update) is not None
        compared = older.column_names if fills else [COMMIT_TIME, COMMIT_SEQNO]
        changed = _find_differences(older.select(compared), newer.select(compared))
        yield from self._updates(older, newer, changed)

    def _updates(
        self, older: pa.Table, newer: pa.Table, changed: pa.Array
    ) -> Iterator[pa.RecordBatch]:
        """Yield updates from the rows of one table to those of another at the same positions."""
        both = zip(
            self._images(older.filter(changed)), self._images(newer.filter(changed)), strict=True
        )
        for (keys, before), (_, after) in both:
            yield self._make_batch(UPDATE, keys, before, after)

    def _logged(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes that the writer logged in ``.cdc`` files."""
        storage, logs = self.reader.storage, self.split.logs
        changes = read_logged_changes(storage, logs, self.mode, keeps_types=self.form.keeps_types)
        if self.mode is LoggingMode.DATA_BEFORE_AFTER:
            for logged in _in_pieces(changes):
                yield self._make_batch(
                    logged.column("op"),
                    None,
                    self._logged_images(logged, "before"),
                    self._logged_images(logged, "after"),
                )
        else:
            yield from self._complete_images(changes)

    def _complete_images(self, changes: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield the logged changes; images that were not logged are read from data files."""
        keys = changes.column("record_key")
        states = (self.split.before, self.split.after)
        older, newer = (_read_rows(self.reader, keys, state) for state in states)
        for logged in _in_pieces(changes):
            op, keys = logged.column("op"), logged.column("record_key")
            after = self._find_images(keys, newer, pc.not_equal(op, DELETE))
            if self.mode is LoggingMode.DATA_BEFORE:
                before = self._logged_images(logged, "before")
            else:
                before = self._find_images(keys, older, pc.not_equal(op, INSERT))
            yield self._make_batch(op, keys, before, after)

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
        images = self.form.images_of_rows(rows.take(positions))
        return pc.if_else(is_there, images, pa.scalar(None, images.type))

    def _logged_images(self, changes: pa.RecordBatch, column: str) -> pa.Array:
        return self.form.images_of_log(changes.column(column), self.split.logs[0].path)

    def _read_images(self, state: FileSlice | None) -> Iterator[tuple[pa.Array, pa.Array]]:
        """Yield the keys and the images of all rows of a state."""
        if state is not None:
            for rows in self.reader.read(state):
                yield from self._images(rows)

    def _images(self, rows: pa.Table) -> Iterator[tuple[pa.Array, pa.Array]]:
        """Yield the keys and the images of rows, in batches."""
        for batch in _in_pieces(rows):
            yield batch.column(RECORD_KEY), self.form.images_of_rows(batch)

    def _read_before(self) -> Iterator[pa.Table]:
        if self.split.before is not None:
            yield from self.reader.read(self.split.before)

    def _make_batch(
        self,
        op: pa.Array | str,
        keys: pa.Array | None,
        before: pa.Array | None = None,
        after: pa.Array | None = None,
    ) -> pa.RecordBatch:
        group, instant = self.split.group, self.split.instant
        return self.form.batch(Changes(group, instant, op, keys, before, after))


@dataclass(frozen=True, slots=True)
class _OnlyInstant:
    """Makes only blocks of one commit visible; in table version 6 a log may have other blocks."""

    instant: str

    def __call__(self, instant: str) -> bool:
        return instant == self.instant


def _read_rows(reader: FileGroupReader, keys: pa.ChunkedArray, state: FileSlice | None) -> pa.Table:
    """Return the rows of a state that have one of the keys; none if there is no state."""
    rows = [] if state is None else [filter_keys(found, keys) for found in reader.read(state)]
    return pa.concat_tables([reader.schema.empty_table(), *rows])


def _in_pieces(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    return iter(rows.combine_chunks().to_batches(_BATCH_ROWS))


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
