"""Reads the logs of a file slice as changes, block by block in scan order.

A row of a data block is an upsert, or a flagged delete if one of its columns marks it as deleted. A
record of a delete block is a delete with an ordering value. If the ordering value is the integer 0,
or if its class differs from the class of the ordering column, the delete always wins
(``BufferedRecordMergerFactory.deltaMergeDeleteRecord`` of Apache Hudi 1.2.0).

``lakemark.log.effective_blocks`` decides which blocks are read, and in which order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.log.data_block import read_rows
from lakemark.log.delete_block import read_deletes
from lakemark.log.effective_blocks import IsVisible, effective_blocks
from lakemark.log.log_block import BlockType, LogBlock
from lakemark.log.log_reader import READ_AT_ONCE_BYTES, read_blocks
from lakemark.model.changes import CHANGE_KIND_FIELD, WRITTEN_COLUMNS, ChangeKind, DeleteMarker
from lakemark.model.file_slice import LogFile
from lakemark.model.meta_columns import (
    DELETE_OPERATIONS,
    IS_DELETED,
    OPERATION,
    PARTITION_PATH,
    RECORD_KEY,
)
from lakemark.read.log_file_pool import LogFilePool, open_logs
from lakemark.read.projection import conform
from lakemark.read.virtual_keys import VirtualKeys
from lakemark.schema.field_path import column_at
from lakemark.storage.storage import Storage

__all__ = ["DeleteMarker", "IsVisible", "LogChanges"]

Mask: TypeAlias = npt.NDArray[np.bool_]
Path: TypeAlias = tuple[str, ...]

#: If the logs of a slice have at most this total size, each is read whole with one request.
_HELD_BYTES = 32 << 20

_DELETING_OPERATIONS = pa.array(DELETE_OPERATIONS)


@dataclass(frozen=True, slots=True)
class LogChanges:
    """Reads logs into tables of changes.

    Attributes:
        storage: storage at the table's root.
        schema: columns of the result, including the record key; the kind of change is added.
        ordering_fields: ordering fields, whose values are also in delete records.
        is_visible: returns whether blocks of an instant are visible.
        delete_marker: marks deletes among data rows, in addition to Hudi's own columns.
        virtual_keys: creates the record keys of rows that do not contain one.
    """

    storage: Storage
    schema: pa.Schema
    ordering_fields: Sequence[str]
    is_visible: IsVisible
    delete_marker: DeleteMarker | None = None
    virtual_keys: VirtualKeys | None = None

    def read(self, logs: Sequence[LogFile]) -> Iterator[pa.Table]:
        """Yield the changes in the logs, oldest first, one table for each block.

        Raises:
            SnapshotChanged: a log no longer exists.
            CorruptData: bytes violate the format.
            Unsupported: lakemark does not read a block of this kind.
        """
        fits_memory = sum(log.size_bytes for log in logs) <= _HELD_BYTES
        with open_logs(self.storage) as files:
            at_once_bytes = READ_AT_ONCE_BYTES if fits_memory else 0
            effective = _effective(files, logs, self.is_visible, at_once_bytes)
            some_are_partial = any(block.is_partial for block in effective)
            for block in effective:
                is_delete = block.type is BlockType.DELETE
                changes = self._deletes(block) if is_delete else self._rows(block)
                yield self._add_written_columns(changes, block) if some_are_partial else changes

    def _rows(self, block: LogBlock) -> pa.Table:
        rows = read_rows(block, [*self.schema.names, *self._key_columns, *self._flag_columns])
        kinds = np.where(self._is_deleted(rows), ChangeKind.FLAGGED_DELETE, ChangeKind.UPSERT)
        changes = conform(rows, self.schema, block.path)
        if self.virtual_keys is not None:
            changes = self.virtual_keys.set_key_column(changes, rows)
        return changes.append_column(CHANGE_KIND_FIELD, pa.array(kinds, pa.int8()))

    def _add_written_columns(self, changes: pa.Table, block: LogBlock) -> pa.Table:
        """Add a column that records which columns the block was written with."""
        names = {field["name"] for field in block.avro_schema["fields"]} if block.is_partial else ()
        is_written = [not names or name in names for name in self.schema.names]
        bits = np.packbits(is_written, bitorder="little").tobytes()
        written = pa.array([bits], pa.binary(len(bits))).take(np.zeros(changes.num_rows, np.int64))
        return changes.append_column(WRITTEN_COLUMNS, written)

    def _deletes(self, block: LogBlock) -> pa.Table:
        records = read_deletes(block)
        empty = self.schema.empty_table()
        types = [column_at(empty, name).type for name in self.ordering_fields]
        ordering, unconditional = records.ordering_as(types)
        leaves: dict[Path, pa.Array] = {
            (RECORD_KEY,): records.record_keys,
            (PARTITION_PATH,): records.partition_paths,
        }
        for name, values in zip(self.ordering_fields, ordering, strict=True):
            leaves[_path_of(name, self.schema)] = values
        columns = _build_struct(pa.struct(list(self.schema)), leaves, len(records.record_keys))
        kinds = np.where(unconditional, ChangeKind.COMMIT_TIME_DELETE, ChangeKind.DELETE)
        changes = pa.Table.from_arrays(columns.flatten(), schema=self.schema)
        return changes.append_column(CHANGE_KIND_FIELD, pa.array(kinds, pa.int8()))

    @property
    def _key_columns(self) -> Sequence[str]:
        return () if self.virtual_keys is None else self.virtual_keys.columns

    @property
    def _flag_columns(self) -> list[str]:
        marker = [self.delete_marker.field] if self.delete_marker else []
        return [IS_DELETED, OPERATION, *marker]

    def _is_deleted(self, rows: pa.Table) -> Mask:
        flags: list[pa.ChunkedArray] = []
        if IS_DELETED in rows.column_names:
            flags.append(rows.column(IS_DELETED))
        if OPERATION in rows.column_names:
            flags.append(pc.is_in(rows.column(OPERATION), value_set=_DELETING_OPERATIONS))
        if self.delete_marker and self.delete_marker.field in rows.column_names:
            text = rows.column(self.delete_marker.field).cast(pa.string())
            flags.append(pc.equal(text, self.delete_marker.text))
        marked: Mask = np.zeros(rows.num_rows, dtype=np.bool_)
        for flag in flags:
            marked |= np.asarray(pc.fill_null(flag, fill_value=False))
        return marked


def read_block_instants(
    storage: Storage, logs: Sequence[LogFile], is_visible: IsVisible
) -> list[str]:
    """Return the instants of the effective blocks of some logs, in their order.

    Args:
        storage: storage at the table's root.
        logs: logs of a file slice, in the order in which they are read.
        is_visible: returns whether blocks of an instant are visible.

    Raises:
        HudiError: as for ``LogChanges.read``.
    """
    with open_logs(storage) as files:
        blocks = _effective(files, logs, is_visible)
        return list(dict.fromkeys(block.instant_time for block in blocks))


def _effective(
    files: LogFilePool, logs: Sequence[LogFile], is_visible: IsVisible, at_once_bytes: int = 0
) -> list[LogBlock]:
    files.open_together([log.path for log in logs])
    blocks: list[LogBlock] = []
    for log in logs:
        blocks += read_blocks(files.file(log.path), log.size_bytes, log.path, at_once_bytes)
    return effective_blocks(blocks, is_visible)


def _build_struct(
    kind: pa.StructType, leaves: Mapping[Path, pa.Array], count: int
) -> pa.StructArray:
    """Return structs with values at some paths, and null in all other fields."""
    children = [_build_field(field, leaves, count) for field in kind]
    return pa.StructArray.from_arrays(children, fields=list(kind))


def _build_field(field: pa.Field, leaves: Mapping[Path, pa.Array], count: int) -> pa.Array:
    inside = {path[1:]: values for path, values in leaves.items() if path[0] == field.name}
    if () in inside:
        return inside[()]
    return _build_struct(field.type, inside, count) if inside else pa.nulls(count, field.type)


def _path_of(name: str, schema: pa.Schema) -> Path:
    return (name,) if name in schema.names else tuple(name.split("."))
