"""Writes a log file: for each table of changes, data blocks followed by delete blocks.

Partial rows are written to separate data blocks, one for each set of columns. Such a block has the
header ``IS_PARTIAL``, and its schema contains only these columns. ``MERGE INTO`` of Apache Hudi
1.2.0 writes partial rows in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.config.parquet_settings import PARQUET_DEFAULTS, ParquetSettings
from lakemark.log.data_block import encode_avro, encode_parquet
from lakemark.log.delete_block import encode_deletes
from lakemark.log.log_block import BlockType, Header, HeaderKey, write_block
from lakemark.log.parquet_format import MAX_BLOCK_BYTES
from lakemark.model.changes import CHANGE_KIND, WRITTEN_COLUMNS, ChangeKind
from lakemark.model.column_ranges import ColumnRanges
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY
from lakemark.model.written_columns import is_written, own_columns
from lakemark.schema.avro import to_json
from lakemark.schema.field_path import column_at
from lakemark.storage.storage import Storage
from lakemark.write.meta_column_values import clear_meta_columns
from lakemark.write.row_groups import divide_rows
from lakemark.write.unfinished_file import UnfinishedFile
from lakemark.write.write_status import WriteStatus, close_file

_DATA_BLOCKS = {"parquet": BlockType.PARQUET_DATA, "avro": BlockType.AVRO_DATA}

_PARTIAL = {HeaderKey.IS_PARTIAL: "true"}


def default_log_format(schema: pa.Schema, ordering_fields: Sequence[str]) -> str:
    """Return ``avro`` if an ordering column is a string, and otherwise ``parquet``.

    Parquet blocks are faster. But Apache Hudi 1.2.0 on Spark misreads string ordering values in any
    Parquet block, so that a newer row may lose to an older row. Hudi reads Avro blocks correctly.
    ``tests/interop/test_text_ordering.py`` shows the behaviour for both formats.

    Args:
        schema: the table's columns.
        ordering_fields: the table's ordering fields; a dotted name is a field of a struct.
    """
    nothing = schema.empty_table()
    kinds = [column_at(nothing, name).type for name in ordering_fields]
    return "avro" if any(pa.types.is_string(kind) for kind in kinds) else "parquet"


class LogFileWriter(UnfinishedFile):
    """Writes a log file sequentially, with at most one block in memory."""

    def __init__(
        self,
        storage: Storage,
        path: str,
        instant: str,
        schema: pa.Schema,
        avro_schema: Mapping[str, object],
        block_format: str = "parquet",
        ordering_fields: Sequence[str] = (),
        is_event_time: bool = True,
        max_block_bytes: int = MAX_BLOCK_BYTES,
        indexed: Sequence[str] = (),
        settings: ParquetSettings = PARQUET_DEFAULTS,
        stores_meta_columns: bool = True,
        replaced_instants: Sequence[str] = (),
    ) -> None:
        """Begin a file.

        Args:
            storage: storage of the table.
            path: path of the file, relative to the table's root.
            instant: requested time of the delta commit.
            schema: columns of the rows, meta columns first, with the types of ``avro_schema``.
            avro_schema: the same schema as Avro, for the block headers.
            block_format: format of data blocks, ``parquet`` or ``avro``.
            ordering_fields: the table's ordering fields.
            is_event_time: whether delete records store ordering values. If False, a delete wins
                over every earlier change.
            max_block_bytes: largest block, in bytes of Arrow memory.
            indexed: columns whose ranges of values are collected from the rows of data blocks.
            settings: compression, page size and dictionaries of Parquet blocks.
            stores_meta_columns: whether data rows keep the values of their meta columns. Otherwise
                these become null. Delete records always contain record key and partition path.
            replaced_instants: for a log compaction, the instants of the blocks in other logs of the
                slice that the blocks of this file replace.
        """
        assert block_format in _DATA_BLOCKS, block_format
        assert 0 < max_block_bytes <= MAX_BLOCK_BYTES, max_block_bytes
        self._schema, self._avro_schema = schema, avro_schema
        self._data_type, self._settings = _DATA_BLOCKS[block_format], settings
        self._ordering = tuple(ordering_fields) if is_event_time else ()
        self._max_block_bytes = max_block_bytes
        # Apache Hudi writes the header entries in this order too.
        self._header = {
            HeaderKey.SCHEMA: to_json(avro_schema),
            HeaderKey.INSTANT_TIME: instant,
        }
        if replaced_instants:
            self._header[HeaderKey.COMPACTED_BLOCK_TIMES] = ",".join(replaced_instants)
        self._stores_meta_columns = stores_meta_columns
        self._size_bytes = self._num_writes = self._num_deletes = 0
        self._num_data_blocks = self._num_delete_blocks = 0
        self._indexed, self._ranges = indexed, list[ColumnRanges]()
        self._file = storage.create_streaming(path)

    @property
    def size_bytes(self) -> int:
        """The size of all blocks that were appended so far."""
        return self._size_bytes

    def append(self, changes: pa.Table) -> None:
        """Append changes: first their upserts as data blocks, then their deletes as delete blocks.

        The changes must be folded. The reason is that the blocks do not record whether an upsert or
        a delete came first, so a key must not occur twice in ``changes``.

        A row that is flagged as deleted is written as a delete record with its ordering value,
        because not every reader checks the flag in data blocks. Apache Hudi's writer does the same.

        A partial row must have at least the meta columns and the ordering columns.

        Args:
            changes: folded changes (``lakemark.model.changes``). Their meta columns must be set
                (see ``set_meta_columns``); in a log, ``_hoodie_file_name`` is the file id.

        Raises:
            InvalidRecords: a value does not fit the schema.
        """
        is_upsert = pc.equal(changes.column(CHANGE_KIND), pa.scalar(ChangeKind.UPSERT, pa.int8()))
        has_deletes = not pc.all(is_upsert).as_py()
        upserts = changes.filter(is_upsert) if has_deletes else changes
        if not self._stores_meta_columns:
            upserts = clear_meta_columns(upserts)
        for names, rows in _split_by_written_columns(upserts):
            self._append_rows(rows, names)
        if has_deletes:
            self._append_deletes(changes.filter(pc.invert(is_upsert)))

    def close(self) -> WriteStatus:
        """Make the file visible.

        Raises:
            ContentMismatch: a file with other bytes exists at the path; see ``close_file``.
        """
        return WriteStatus(
            size_bytes=close_file(self._file),
            num_writes=self._num_writes,
            num_deletes=self._num_deletes,
            num_data_blocks=self._num_data_blocks,
            num_delete_blocks=self._num_delete_blocks,
            column_ranges=ColumnRanges.union(self._ranges) if self._indexed else None,
        )

    def abort(self) -> None:
        """Discard the file, unless it was closed."""
        self._file.abort()

    def _append_rows(self, rows: pa.Table, names: Sequence[str] | None) -> None:
        """Append data blocks that have only the columns ``names``; None for all columns."""
        schema, avro_schema, header = self._schema, self._avro_schema, self._header
        if names is not None:
            schema = pa.schema([schema.field(name) for name in names])
            avro_schema = _select_fields(avro_schema, names)
            header = {**header, HeaderKey.SCHEMA: to_json(avro_schema), **_PARTIAL}
        for block in divide_rows(rows, schema, self._max_block_bytes):
            self._write_block(self._data_type, header, self._encode(block, avro_schema))
            self._num_writes += block.num_rows
            self._num_data_blocks += 1
            if self._indexed:
                self._ranges.append(ColumnRanges.of(block, self._indexed))

    def _write_block(self, kind: BlockType, header: Header, content: bytes | memoryview) -> None:
        self._size_bytes += write_block(self._file, kind, header, content)

    def _encode(self, rows: pa.Table, avro_schema: Mapping[str, object]) -> memoryview:
        if self._data_type is BlockType.AVRO_DATA:
            return encode_avro(rows, avro_schema)
        return encode_parquet(rows, avro_schema, self._settings)

    def _append_deletes(self, deletes: pa.Table) -> None:
        records = pa.table(
            {
                RECORD_KEY: deletes.column(RECORD_KEY),
                PARTITION_PATH: deletes.column(PARTITION_PATH),
                CHANGE_KIND: deletes.column(CHANGE_KIND),
                # A field of a struct becomes a column that has the dotted name.
                **{name: column_at(deletes, name) for name in self._ordering},
            }
        )
        for block in divide_rows(records, records.schema, self._max_block_bytes):
            content = _encode_deletes(block, self._ordering)
            self._write_block(BlockType.DELETE, self._header, content)
            self._num_deletes += block.num_rows
            self._num_delete_blocks += 1


def _split_by_written_columns(rows: pa.Table) -> Iterator[tuple[Sequence[str] | None, pa.Table]]:
    """Group rows by the set of columns that they have, in the order in which the sets appear.

    Yields:
        The names of the columns and the rows that have them. The names are None for all columns.
    """
    if WRITTEN_COLUMNS not in rows.column_names or not rows.num_rows:
        yield None, rows
        return
    names = own_columns(rows)
    sets = rows.column(WRITTEN_COLUMNS).combine_chunks().dictionary_encode()
    codes = sets.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], np.arange(len(sets.dictionary)), side="right")
    ordered = rows.take(pa.array(order)) if len(ends) > 1 else rows
    for code, bits in enumerate(sets.dictionary.to_pylist()):
        start = ends[code - 1] if code else 0
        flags = is_written(bits, len(names))
        written = [name for name, flag in zip(names, flags, strict=True) if flag]
        part = ordered.slice(start, ends[code] - start)
        yield None if len(written) == len(names) else written, part


def _select_fields(avro_schema: Mapping[str, object], names: Sequence[str]) -> dict[str, object]:
    fields = avro_schema["fields"]
    assert isinstance(fields, list), avro_schema
    return {**avro_schema, "fields": [field for field in fields if field["name"] in set(names)]}


def _encode_deletes(records: pa.Table, ordering_fields: Sequence[str]) -> bytes:
    columns = {name: records.column(name).combine_chunks() for name in records.column_names}
    wins_always = columns[CHANGE_KIND].to_numpy() == ChangeKind.COMMIT_TIME_DELETE
    return encode_deletes(
        columns[RECORD_KEY],
        columns[PARTITION_PATH],
        [columns[name] for name in ordering_fields] or None,
        np.asarray(wins_always, np.bool_),
    )
