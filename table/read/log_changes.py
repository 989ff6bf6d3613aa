"""The logs of a file slice as changes, block by block in scan order.

Rows of a data block are upserts, or flagged deletes where one of their columns says so. Records of
a delete block are deletes ordered by the value they carry; where that value is the integer 0, or
of another class than the ordering column, the delete wins whatever it meets
(``BufferedRecordMergerFactory.deltaMergeDeleteRecord`` of Apache Hudi 1.2.0).

Left out are blocks of instants that the caller does not see, blocks that a rollback command took
back (table version 6), and blocks that a log compaction wrote again, whose instants its block
names. ``BaseHoodieLogRecordReader`` is the source of these rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from table.errors import Unsupported
from table.log.data_block import read_rows
from table.log.delete_block import read_deletes
from table.log.log_block import BlockType, HeaderKey, LogBlock
from table.log.log_reader import read_blocks
from table.model.changes import CHANGE_KIND_FIELD, ChangeKind
from table.model.file_slice import LogFile
from table.model.meta_columns import IS_DELETED, PARTITION_PATH, RECORD_KEY
from table.read.base_file import open_data_file
from table.read.projection import conform
from table.schema.field_path import column_at
from table.storage.storage import Storage

#: Whether a commit of that instant is part of the snapshot being read.
IsVisible: TypeAlias = Callable[[str], bool]

Mask: TypeAlias = npt.NDArray[np.bool_]
Path: TypeAlias = tuple[str, ...]

_CHANGING = (
    BlockType.DELETE,
    BlockType.AVRO_DATA,
    BlockType.HFILE_DATA,
    BlockType.PARQUET_DATA,
)

_OPERATION = "_hoodie_operation"
_DELETING_OPERATIONS = pa.array(["D", "-U"])


@dataclass(frozen=True, slots=True)
class DeleteMarker:
    """A column and the text in it that marks a data row as a delete.

    Stored as ``hoodie.record.merge.property.hoodie.payload.delete.field`` and ``….marker``.
    """

    field: str
    text: str


@dataclass(frozen=True, slots=True)
class LogChanges:
    """Reads logs into tables of changes.

    Attributes:
        storage: where the logs are.
        schema: columns of the result, before the kind; the record key is one of them.
        ordering_fields: what delete records carry a value of.
        is_visible: whether blocks of an instant count.
        delete_marker: marks deletes among data rows, besides Hudi's own columns.
    """

    storage: Storage
    schema: pa.Schema
    ordering_fields: Sequence[str]
    is_visible: IsVisible
    delete_marker: DeleteMarker | None = None

    def read(self, logs: Iterable[LogFile]) -> Iterator[pa.Table]:
        """Changes of the logs, oldest first, one table for each block.

        Raises:
            SnapshotChanged: a log is gone.
            CorruptData: bytes that disagree with the format.
            Unsupported: a block of a kind that is not read here.
        """
        with ExitStack() as open_files:
            blocks: list[LogBlock] = []
            for log in logs:
                stream = open_files.enter_context(open_data_file(self.storage, log.path))
                blocks += read_blocks(stream, log.size_bytes, log.path)
            for block in _standing(blocks, self.is_visible):
                if block.type is BlockType.DELETE:
                    yield self._deletes(block)
                else:
                    yield self._rows(block)

    def _rows(self, block: LogBlock) -> pa.Table:
        if block.is_partial:
            message = (
                f"{block.path} holds a partial update, written by MERGE INTO; "
                "compact the table with the Hudi that wrote it"
            )
            raise Unsupported(message)
        rows = read_rows(block, [*self.schema.names, *self._flag_columns])
        kinds = np.where(self._is_deleted(rows), ChangeKind.FLAGGED_DELETE, ChangeKind.UPSERT)
        changes = conform(rows, self.schema, block.path)
        return changes.append_column(CHANGE_KIND_FIELD, pa.array(kinds, pa.int8()))

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
        columns = _filled(pa.struct(list(self.schema)), leaves, len(records.record_keys))
        kinds = np.where(unconditional, ChangeKind.COMMIT_TIME_DELETE, ChangeKind.DELETE)
        changes = pa.Table.from_arrays(columns.flatten(), schema=self.schema)
        return changes.append_column(CHANGE_KIND_FIELD, pa.array(kinds, pa.int8()))

    @property
    def _flag_columns(self) -> list[str]:
        marker = [self.delete_marker.field] if self.delete_marker else []
        return [IS_DELETED, _OPERATION, *marker]

    def _is_deleted(self, rows: pa.Table) -> Mask:
        flags: list[pa.ChunkedArray] = []
        if IS_DELETED in rows.column_names:
            flags.append(rows.column(IS_DELETED))
        if _OPERATION in rows.column_names:
            flags.append(pc.is_in(rows.column(_OPERATION), value_set=_DELETING_OPERATIONS))
        if self.delete_marker and self.delete_marker.field in rows.column_names:
            text = rows.column(self.delete_marker.field).cast(pa.string())
            flags.append(pc.equal(text, self.delete_marker.text))
        marked: Mask = np.zeros(rows.num_rows, dtype=np.bool_)
        for flag in flags:
            marked |= np.asarray(pc.fill_null(flag, fill_value=False))
        return marked


def _standing(blocks: Sequence[LogBlock], is_visible: IsVisible) -> Iterator[LogBlock]:
    """The data and delete blocks that count, in scan order."""
    superseded: set[str] = set()
    for block in blocks:
        if block.type is BlockType.COMMAND:
            superseded.add(block.header.get(HeaderKey.TARGET_INSTANT_TIME, ""))
        elif block.type in _CHANGING and is_visible(block.instant_time):
            rewritten = block.header.get(HeaderKey.COMPACTED_BLOCK_TIMES, "")
            superseded.update(filter(None, rewritten.split(",")))
    for block in blocks:
        if block.type in _CHANGING and block.instant_time not in superseded:
            if is_visible(block.instant_time):
                yield block


def _filled(kind: pa.StructType, leaves: Mapping[Path, pa.Array], count: int) -> pa.StructArray:
    """Structs with values at some paths, and null everywhere else."""
    children = [_filled_field(field, leaves, count) for field in kind]
    return pa.StructArray.from_arrays(children, fields=list(kind))


def _filled_field(field: pa.Field, leaves: Mapping[Path, pa.Array], count: int) -> pa.Array:
    inside = {path[1:]: values for path, values in leaves.items() if path[0] == field.name}
    if () in inside:
        return inside[()]
    return _filled(field.type, inside, count) if inside else pa.nulls(count, field.type)


def _path_of(name: str, schema: pa.Schema) -> Path:
    return (name,) if name in schema.names else tuple(name.split("."))
