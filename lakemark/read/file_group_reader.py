"""Reads one file slice: merges base file and logs into live rows, in bounded memory.

Queries, compaction and copy-on-write all use this reader of file groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.merge.merge_stream import (
    DEFAULT_MEMORY_BUDGET_BYTES,
    MAX_BATCH_BYTES,
    MergeStream,
    merge_streams,
    split_batches,
)
from lakemark.merge.record_merger import RecordMerger
from lakemark.model.changes import CHANGE_KIND, CHANGE_KIND_FIELD, WRITTEN_COLUMNS, ChangeKind
from lakemark.model.file_slice import BaseFile, FileSlice, LogFile
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.read.base_file import BATCH_ROWS, read_base_file
from lakemark.read.log_changes import DeleteMarker, IsVisible, LogChanges
from lakemark.read.path_columns import PathColumns
from lakemark.read.projection import conform, project_schema
from lakemark.read.row_filter import filter_rows
from lakemark.read.virtual_keys import VirtualKeys
from lakemark.storage.storage import Storage

_KEY_COLUMN = pa.schema([(RECORD_KEY, pa.string())])


def all_visible(instant: str) -> bool:
    """Return True, because from table version 8 on, slices have only files of completed commits."""
    return True


@dataclass(frozen=True, slots=True)
class FileGroupReader:
    """Reads file slices of one table.

    Attributes:
        storage: storage at the table's root.
        schema: the table's current columns, meta columns first; rows of older files are converted
            to this schema.
        merger: decides which record wins.
        is_visible: returns whether log blocks of an instant are visible. It is needed in table
            version 6, where one log may have blocks of several commits.
        delete_marker: marks deletes among data rows, in addition to Hudi's own columns.
        memory_budget_bytes: memory for the changes of one slice; further changes are spilled to
            disk.
        virtual_keys: creates the record keys of a table without meta columns.
        path_columns: columns whose values are only in the partition path; a table with such columns
            has no logs.
    """

    storage: Storage
    schema: pa.Schema
    merger: RecordMerger
    is_visible: IsVisible = all_visible
    delete_marker: DeleteMarker | None = None
    memory_budget_bytes: int = DEFAULT_MEMORY_BUDGET_BYTES
    virtual_keys: VirtualKeys | None = None
    path_columns: PathColumns | None = None

    def read(
        self,
        file_slice: FileSlice,
        columns: Sequence[str] | None = None,
        condition: pc.Expression | None = None,
        *,
        keeps_order: bool = True,
    ) -> Iterator[pa.Table]:
        """Yield the live rows, in batches of at most 64 MiB; no batch is empty.

        Args:
            file_slice: the file slice.
            columns: the columns of the result, in this order; all when None.
            condition: a condition on these columns. If the slice has logs, it is applied only after
                the merge, because a change may alter any column.
            keeps_order: whether updated rows keep their place in the base file. Without order, the
                merge is faster.

        Raises:
            SnapshotChanged: a file of the slice no longer exists.
            CorruptData: bytes violate the format.
            Unsupported: lakemark does not read this kind of file or block.
            InvalidConfig: the table does not have one of the columns.
        """
        names = self.schema.names if columns is None else list(columns)
        live: Iterator[pa.Table]
        if file_slice.logs:
            live = self.merge(file_slice, columns, keeps_order=keeps_order)
        elif self.path_columns is not None:
            stored = self._read_base(file_slice.base, project_schema(self.schema, names))
            path = file_slice.group.partition_path
            live = (self.path_columns.set_columns(rows, path) for rows in stored)
        elif self.virtual_keys is not None and RECORD_KEY in names:
            live = self._read_base_with_keys(file_slice.base, project_schema(self.schema, names))
        else:
            live = self._read_base(file_slice.base, project_schema(self.schema, names), condition)
        for rows in live:
            found = filter_rows(rows.select(names), condition)
            yield from split_batches(found, MAX_BATCH_BYTES)

    def merge(
        self,
        file_slice: FileSlice,
        columns: Sequence[str] | None = None,
        *,
        keeps_order: bool = True,
    ) -> MergeStream:
        """Return the live rows as a stream that also counts what the merge did.

        The rows also contain the columns that the merge needs.

        Args:
            file_slice: the file slice.
            columns: the columns to return; all when None.
            keeps_order: as for ``read``.
        """
        schema = self._merge_schema(columns)
        changes = self._log_changes(schema).read(file_slice.logs)
        base = self._read_base_with_keys(file_slice.base, schema)
        return merge_streams(
            base, changes, self.merger, self.memory_budget_bytes, keeps_order=keeps_order
        )

    def read_changes(self, file_slice: FileSlice) -> Iterator[pa.Table]:
        """Return the changes in the logs, oldest first; each has all columns.

        Several changes to one key are not combined.
        """
        return self._log_changes(self._merge_schema(None)).read(file_slice.logs)

    def read_sample(
        self, file_slice: FileSlice, columns: Sequence[str], row_count: int
    ) -> Iterator[pa.Table]:
        """Yield some rows of the base file and of the newest log, as stored and without a merge.

        Deletes and partial rows are skipped.

        Args:
            file_slice: the file slice.
            columns: columns of the result, including the record key.
            row_count: largest number of rows from one file.

        Raises:
            HudiError: as for ``read``.
        """
        schema = project_schema(self.schema, columns)
        if file_slice.base is not None:
            rows = self._read_base_with_keys(file_slice.base, schema, row_count)
            yield from (batch.select(columns) for batch in islice(rows, 1))
        changes = self._log_changes(self._merge_schema(columns)).read(file_slice.logs[-1:])
        complete = (batch for batch in changes if WRITTEN_COLUMNS not in batch.column_names)
        for batch in complete:
            upserts = batch.filter(pc.equal(batch[CHANGE_KIND], ChangeKind.UPSERT))
            if upserts.num_rows:
                yield upserts.slice(0, row_count).select(columns)
                return

    def read_changed_keys(self, file_slice: FileSlice) -> Iterator[pa.Table]:
        """Return the changes in the logs, with the columns that a merge of the keys needs.

        Deletes are included.
        """
        return self._log_changes(self._merge_schema([RECORD_KEY])).read(file_slice.logs)

    def read_base_keys(self, base: BaseFile, batch_rows: int = BATCH_ROWS) -> Iterator[pa.Table]:
        """Yield the record keys of a base file's rows, in the column ``RECORD_KEY``.

        Args:
            base: the base file.
            batch_rows: number of rows that are decoded at a time.

        Raises:
            HudiError: as for ``read``.
        """
        return self._read_base_with_keys(base, _KEY_COLUMN, batch_rows)

    def merge_keys(
        self,
        file_slice: FileSlice,
        record_keys: pa.Array,
        newer: pa.Table | None = None,
        base: Iterable[pa.Table] | None = None,
    ) -> MergeStream:
        """Return the live rows of some keys, with only the columns that decide which change wins.

        Args:
            file_slice: the file slice that may have the keys.
            record_keys: the keys.
            newer: changes to these keys that are newer than the logs, one for each key.
            base: rows to merge instead of the base file's rows, with the same columns.

        Raises:
            HudiError: as for ``read``.
        """
        schema, wanted = self._merge_schema([RECORD_KEY]), pc.field(RECORD_KEY).isin(record_keys)
        stored = self._read_base_of_keys(file_slice.base, schema, wanted) if base is None else base
        changes_schema = schema.append(CHANGE_KIND_FIELD)
        logged = self._log_changes(schema).read(file_slice.logs)
        changes = (
            # Whether a row is live does not depend on the columns that a change was written with.
            conform(part, changes_schema, "")
            for part in chain(
                (some.filter(wanted) for some in logged), () if newer is None else (newer,)
            )
            if part.num_rows
        )
        found = (rows.filter(wanted) for rows in stored)
        return merge_streams(found, changes, self.merger, self.memory_budget_bytes)

    def stored_rows(
        self, file_slice: FileSlice, record_keys: pa.Array, columns: Sequence[str]
    ) -> list[pa.Table]:
        """Return the rows of some keys in the base file, with the columns that a merge needs.

        Args:
            file_slice: the file slice.
            record_keys: the keys.
            columns: the columns that the merged rows must have.

        Raises:
            HudiError: as for ``read``.
        """
        schema, wanted = self._merge_schema(columns), pc.field(RECORD_KEY).isin(record_keys)
        stored = self._read_base_of_keys(file_slice.base, schema, wanted)
        found = (rows.filter(wanted) for rows in stored)
        return [rows for rows in found if rows.num_rows]

    def merge_rows(
        self,
        stored: Iterable[pa.Table],
        logs: Sequence[LogFile],
        record_keys: pa.Array,
        columns: Sequence[str],
    ) -> MergeStream:
        """Return the live rows of some keys.

        Args:
            stored: the rows of these keys in the base file, as ``stored_rows`` returns them.
            logs: the logs of the file slice.
            record_keys: the keys.
            columns: the columns that the merged rows must have; they may have more.

        Raises:
            HudiError: as for ``read``.
        """
        schema, wanted = self._merge_schema(columns), pc.field(RECORD_KEY).isin(record_keys)
        logged = (part.filter(wanted) for part in self._log_changes(schema).read(logs))
        changes = (part for part in logged if part.num_rows)
        return merge_streams(stored, changes, self.merger, self.memory_budget_bytes)

    def _read_base(
        self,
        base: BaseFile | None,
        schema: pa.Schema,
        condition: pc.Expression | None = None,
        batch_rows: int = BATCH_ROWS,
    ) -> Iterator[pa.Table]:
        if base is not None:
            yield from read_base_file(self.storage, base, schema, condition, batch_rows)

    def _read_base_of_keys(
        self, base: BaseFile | None, schema: pa.Schema, wanted: pc.Expression
    ) -> Iterator[pa.Table]:
        """Yield rows among which are all rows of some keys, given a condition on the key."""
        if self.virtual_keys is None:
            return self._read_base(base, schema, wanted)
        return self._read_base_with_keys(base, schema)

    def _read_base_with_keys(
        self, base: BaseFile | None, schema: pa.Schema, batch_rows: int = BATCH_ROWS
    ) -> Iterator[pa.Table]:
        if self.virtual_keys is None:
            yield from self._read_base(base, schema, batch_rows=batch_rows)
            return
        names = set(schema.names) & set(self.schema.names) | set(self.virtual_keys.columns)
        stored = project_schema(self.schema, names)
        for rows in self._read_base(base, stored, batch_rows=batch_rows):
            yield self.virtual_keys.set_key_column(conform(rows, schema, ""), rows)

    def _log_changes(self, schema: pa.Schema) -> LogChanges:
        return LogChanges(
            self.storage,
            schema,
            self.merger.ordering_fields,
            self.is_visible,
            self.delete_marker,
            self.virtual_keys,
        )

    def _merge_schema(self, columns: Sequence[str] | None) -> pa.Schema:
        """Return the columns that a merge needs in order to return ``columns`` (all if None).

        The record key is included.
        """
        if self.merger.needs_whole_rows:
            columns = None
        if columns is None and RECORD_KEY in self.schema.names:
            return self.schema
        names = self.schema.names if columns is None else columns
        ordering = (_column_of(name, self.schema) for name in self.merger.ordering_fields)
        schema = project_schema(
            self.schema, {*ordering, *names, *_present(RECORD_KEY, self.schema)}
        )
        key = pa.field(RECORD_KEY, pa.string())
        return schema if RECORD_KEY in schema.names else pa.schema([key, *schema])


def _present(name: str, schema: pa.Schema) -> tuple[str, ...]:
    return (name,) if name in schema.names else ()


def _column_of(field: str, schema: pa.Schema) -> str:
    """Return the top-level column of a field, which may be inside a struct."""
    return field if field in schema.names else field.split(".")[0]
