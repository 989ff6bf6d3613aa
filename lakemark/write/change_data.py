"""Logs the changes that a commit makes to a base file, for CDC queries of copy-on-write tables.

A base file holds all rows of its file group, so a reader cannot see which of them a commit changed.
So each rewritten base file has a ``.cdc`` file next to it: a log file with CDC_DATA blocks, whose
records are those that ``lakemark.read.cdc.logged_changes`` reads. A new file group needs no
``.cdc`` file, because all of its rows were inserted.

Source: ``HoodieMergeHandleWithChangeLog``, ``HoodieCDCLogger`` and ``HoodieCDCUtils`` of Apache
Hudi 1.2.0.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.config.table_properties import LoggingMode
from lakemark.log.data_block import encode_avro
from lakemark.log.log_block import BlockType, HeaderKey, write_block
from lakemark.log.parquet_format import MAX_BLOCK_BYTES
from lakemark.model.file_names import LogFileName
from lakemark.model.file_slice import FileGroupId, join
from lakemark.model.meta_columns import COMMIT_TIME, META_COLUMNS, RECORD_KEY, without_meta_columns
from lakemark.read.row_filter import filter_keys
from lakemark.write.markers import create_marker
from lakemark.write.row_groups import divide_rows
from lakemark.write.write_context import WriteContext
from lakemark.write.write_status import close_file

INSERT, UPDATE, DELETE = "i", "u", "d"

_NULLABLE_TEXT = ["string", "null"]


class RowChanges:
    """The rows of one file group that a commit changes, before and after the commit.

    The streams of a merge pass through this object. The changed rows are held in memory.
    """

    def __init__(self, schema: pa.Schema, *, only_adds: bool = False) -> None:
        """Create an empty object.

        Args:
            schema: the columns of the table, meta columns first.
            only_adds: whether each change becomes a row of its own, even if its key is stored.
        """
        self._schema, self._only_adds = schema, only_adds
        self._keys: list[pa.Array] = []
        self._has_all_keys = self._has_missed_rows = False
        self._before: list[pa.Table] = []
        self._after: list[pa.Table] = []
        self._unchanged: list[pa.Array] = []

    def each_change(self, changes: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Yield the changes of the commit, whose keys are noted."""
        for part in changes:
            self._keys += part.column(RECORD_KEY).chunks
            yield part
        self._has_all_keys = True

    def each_stored(self, stored: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Yield the rows of the base file before the commit; rows that may change are noted."""
        for rows in stored:
            if self._only_adds:
                pass  # stored rows stay as they are
            elif self._has_all_keys:
                self._before.append(filter_keys(rows, self._all_keys()))
            else:  # a large merge reads changes and rows at the same time
                self._has_missed_rows = True
            yield rows

    def add(self, rows: pa.Table) -> None:
        """Note merged rows. A row without a commit time is new or changed."""
        is_changed = rows.column(COMMIT_TIME).is_null()
        self._after.append(rows.select(self._schema.names).filter(is_changed))
        if self._only_adds:
            return
        kept = rows.select([RECORD_KEY]).filter(pc.invert(is_changed))
        self._unchanged += filter_keys(kept, self._all_keys()).column(RECORD_KEY).chunks

    def finish(self, read_stored: Callable[[], Iterable[pa.Table]]) -> pa.Table:
        """Return the changes: updated and inserted rows, and then deleted ones.

        Args:
            read_stored: reads the rows of the base file before the commit again.

        Returns:
            A table with the columns ``op``, ``record_key``, ``before`` and ``after``. The images
            are structs without meta columns, or null.
        """
        if self._has_missed_rows:
            self._before = [filter_keys(rows, self._all_keys()) for rows in read_stored()]
        before, after = self._joined(self._before), self._joined(self._after)
        unchanged = pa.chunked_array(self._unchanged, pa.string())
        before = before.filter(pc.invert(pc.is_in(before.column(RECORD_KEY), unchanged)))
        keys = before.column(RECORD_KEY).combine_chunks()
        positions = pc.index_in(after.column(RECORD_KEY).combine_chunks(), value_set=keys)
        is_gone = pc.invert(pc.is_in(keys, after.column(RECORD_KEY)))
        gone = before.filter(is_gone)
        return pa.concat_tables(
            [
                _changes(
                    pc.if_else(positions.is_null(), INSERT, UPDATE),
                    after.column(RECORD_KEY),
                    _images(before).take(positions),
                    _images(after),
                ),
                _changes(
                    pa.repeat(pa.scalar(DELETE), gone.num_rows),
                    gone.column(RECORD_KEY),
                    _images(gone),
                    pa.nulls(gone.num_rows, _image_type(gone.schema)),
                ),
            ]
        )

    def _all_keys(self) -> pa.ChunkedArray:
        return pa.chunked_array(self._keys, pa.string())

    def _joined(self, tables: list[pa.Table]) -> pa.Table:
        return pa.concat_tables([self._schema.empty_table(), *tables]).combine_chunks()


def write_change_data(
    context: WriteContext, group: FileGroupId, write_token: str, changes: pa.Table
) -> dict[str, int]:
    """Write the ``.cdc`` file of a rewritten base file; return its path and size in bytes.

    Args:
        context: the commit, whose table logs changes.
        group: the file group of the base file.
        write_token: the write token of the base file.
        changes: the changes, as ``RowChanges.finish`` returns them. There may be none; the file
            then shows that no row changed.

    Raises:
        ContentMismatch: another attempt wrote other changes.
    """
    mode = context.cdc_mode
    assert mode is not None, "the table logs no changes"
    name = LogFileName(group.file_id, context.instant, 1, write_token, is_cdc=True)
    path = join(group.partition_path, str(name))
    create_marker(context.storage, context.instant, path)
    records = _records(changes, mode, context.instant)
    schema = _schema(mode, context.avro_schema)
    header = {HeaderKey.SCHEMA: json.dumps(schema), HeaderKey.INSTANT_TIME: context.instant}
    file = context.storage.create_streaming(path)
    try:
        blocks = list(divide_rows(records, records.schema, MAX_BLOCK_BYTES)) or [records]
        for block in blocks:
            write_block(file, BlockType.CDC_DATA, header, encode_avro(block, schema))
        return {path: close_file(file)}
    finally:
        file.abort()


def _records(changes: pa.Table, mode: LoggingMode, instant: str) -> pa.Table:
    """Return the columns that a logging mode stores."""
    if mode is LoggingMode.OP_KEY_ONLY:
        return changes.select(["op", "record_key"])
    if mode is LoggingMode.DATA_BEFORE:
        return changes.select(["op", "record_key", "before"])
    times = pa.repeat(pa.scalar(instant), changes.num_rows)
    return pa.table(
        {
            "op": changes.column("op"),
            "ts_ms": times,
            "before": changes.column("before"),
            "after": changes.column("after"),
        }
    )


def _schema(mode: LoggingMode, table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Avro schema of the records, in which ``after`` names the type of ``before``."""
    if mode is LoggingMode.OP_KEY_ONLY:
        names = ("op", "record_key")
        fields: list[dict[str, Any]] = [{"name": name, "type": _NULLABLE_TEXT} for name in names]
        return {"type": "record", "name": "Record", "fields": fields}
    second = "record_key" if mode is LoggingMode.DATA_BEFORE else "ts_ms"
    image = _image_schema(table)
    types: dict[str, object] = {"op": "string", second: "string", "before": image}
    if mode is LoggingMode.DATA_BEFORE_AFTER:
        types["after"] = f"{image['namespace']}.{image['name']}"
    fields = [
        {"name": name, "type": ["null", kind], "doc": "", "default": None}
        for name, kind in types.items()
    ]
    namespace = image["namespace"]
    return {"type": "record", "name": "CDC", "namespace": namespace, "doc": "", "fields": fields}


def _image_schema(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a row without its meta columns."""
    return {**table, "fields": [one for one in table["fields"] if one["name"] not in META_COLUMNS]}


def _changes(
    op: pa.Array | pa.ChunkedArray,
    keys: pa.ChunkedArray,
    before: pa.Array,
    after: pa.Array,
) -> pa.Table:
    return pa.table({"op": op, "record_key": keys, "before": before, "after": after})


def _images(rows: pa.Table) -> pa.StructArray:
    own = rows.select(without_meta_columns(rows.schema).names).combine_chunks()
    columns = [column.combine_chunks() for column in own.columns]
    whole = [c.combine_chunks() if isinstance(c, pa.ChunkedArray) else c for c in columns]
    return pa.StructArray.from_arrays(whole, fields=list(own.schema))


def _image_type(schema: pa.Schema) -> pa.DataType:
    return pa.struct(list(without_meta_columns(schema)))
