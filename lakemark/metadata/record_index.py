"""Reads the record index, which contains the location of each record key.

A file id that begins with a UUID is stored as the two halves of the UUID and the number after it.
Any other file id is stored as text. A location also has the instant of the commit that first wrote
the key to that file group, in milliseconds since 1970.
Source: ``HoodieRecordIndexInfo``, ``getLocationFromRecordIndexInfo`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.hfile.selection import Keys, Selection
from lakemark.errors import CorruptData
from lakemark.metadata.metadata_table import MetadataTable, Part
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.metadata.shards import by_shard, shard_series
from lakemark.metadata.slice_rows import KEY, PAYLOAD
from lakemark.model.file_slice import FileSlice

LOCATIONS = pa.schema(
    [
        pa.field("record_key", pa.string(), nullable=False),
        pa.field("partition_path", pa.string(), nullable=False),
        pa.field("file_id", pa.string(), nullable=False),
        pa.field("instant_time", pa.string()),
        pa.field("position", pa.int64()),
    ]
)

_RECORD_INDEX = PartitionKind.RECORD_INDEX
_FILE_ID_PREFIX = "record-index-"
_AS_UUID = 0
#: The last millisecond of the year 9999.
_LAST_MILLI = 253_402_300_799_999
_NO_NUMBER = -1


@dataclass(frozen=True)
class RecordIndex:
    """Reads the partition ``record_index``.

    Attributes:
        metadata: the metadata table that contains the index.
        zone: the timeline's time zone, in which instant times are formatted.
    """

    metadata: MetadataTable
    zone: str = "UTC"

    @property
    def is_partitioned(self) -> bool:
        """Whether a key is unique only within a partition of the table."""
        definition = self.metadata.definitions.get(_RECORD_INDEX.stored_name)
        return definition is not None and definition.is_partitioned

    def lookup(self, record_keys: pa.Array, partition_path: str | None = None) -> pa.Table:
        """Return the locations of those keys that the table contains, in no particular order.

        Only blocks that may contain a key are read.

        Args:
            record_keys: strings, in any order; a key may occur repeatedly. Nulls match nothing.
            partition_path: the only partition to search, if keys are unique only within a
                partition; ignored otherwise.

        Returns:
            A table with the schema ``LOCATIONS``.

        Raises:
            SnapshotChanged: the metadata table was compacted in the meantime; open it again.
            CorruptData: bytes of the metadata table do not match the format.
        """
        wanted = Keys.of_any(record_keys)
        if partition_path is None or not self.is_partitioned:
            parts: Sequence[Part] = self._parts(wanted)
        else:
            slices = self.metadata.slices(_RECORD_INDEX.stored_name)
            parts = by_shard(_slices_of(slices, partition_path), wanted)
        return pa.concat_tables([LOCATIONS.empty_table(), *self._locations(parts)])

    def scan(self) -> Iterator[pa.Table]:
        """Yield the locations of all keys, as ``LOCATIONS``; errors as for ``lookup``."""
        yield from self._locations(self._parts(None))

    def _parts(self, selection: Selection | None) -> Sequence[Part]:
        return self.metadata.parts(_RECORD_INDEX.stored_name, selection)

    def _locations(self, parts: Sequence[Part]) -> Iterator[pa.Table]:
        for rows in self.metadata.newest(parts, _RECORD_INDEX.payload):
            if rows.num_rows:
                yield _locations(rows, self.zone)


def _slices_of(slices: Sequence[FileSlice], partition_path: str) -> list[FileSlice]:
    """Return the index's file groups for one partition of the table.

    The ids of these file groups contain the escaped path of the partition.
    """
    return [
        file_slice
        for prefix, series in shard_series(slices).items()
        if unquote(prefix.removeprefix(_FILE_ID_PREFIX).removesuffix("-")) == partition_path
        for file_slice in series
    ]


def _locations(rows: pa.Table, zone: str) -> pa.Table:
    payload = rows.column(PAYLOAD).combine_chunks()
    partition_paths = pc.struct_field(payload, "partitionName")
    file_ids = _file_ids(payload)
    if partition_paths.null_count or file_ids.null_count:
        path, expected = _RECORD_INDEX.stored_name, "a partition and a file id of every record"
        raise CorruptData(path, None, expected, "null")
    columns = [
        rows.column(KEY),
        partition_paths,
        file_ids,
        _instants(pc.struct_field(payload, "instantTime"), zone),
        pc.struct_field(payload, "position"),
    ]
    return pa.Table.from_arrays(columns, schema=LOCATIONS)


def _file_ids(payload: pa.StructArray) -> pa.Array:
    encoding = pc.fill_null(pc.struct_field(payload, "fileIdEncoding"), _AS_UUID)
    numbers = pc.fill_null(pc.struct_field(payload, "fileIndex"), _NO_NUMBER)
    uuids = _uuids(
        _integers(pc.struct_field(payload, "fileIdHighBits")),
        _integers(pc.struct_field(payload, "fileIdLowBits")),
    )
    numbered = pc.binary_join_element_wise(uuids, numbers.cast(pa.string()), "-")
    from_uuid = pc.if_else(pc.equal(numbers, _NO_NUMBER), uuids, numbered)
    as_text = pc.struct_field(payload, "fileId")
    return pc.if_else(pc.equal(encoding, _AS_UUID), from_uuid, as_text)


def _integers(column: pa.Array) -> npt.NDArray[np.int64]:
    return np.asarray(pc.fill_null(column, 0))


_HEX_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
_UUID_LENGTH = 36
_DASHES = (8, 13, 18, 23)


def _uuids(high: npt.NDArray[np.int64], low: npt.NDArray[np.int64]) -> pa.StringArray:
    """Return the text of each UUID, given by its two halves, as Java's ``UUID.toString``."""
    octets = np.stack([high, low], axis=1).astype(">i8").view(np.uint8)
    text = np.full((len(high), _UUID_LENGTH), ord("-"), np.uint8)
    digits = [at for at in range(_UUID_LENGTH) if at not in _DASHES]
    text[:, digits[0::2]] = _HEX_DIGITS[octets >> 4]
    text[:, digits[1::2]] = _HEX_DIGITS[octets & 0x0F]
    offsets = np.arange(len(high) + 1, dtype=np.int32) * _UUID_LENGTH
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    return pa.StringArray.from_buffers(len(high), buffers[1], buffers[2])


def _instants(millis: pa.Array, zone: str) -> pa.Array:
    """Format times as ``yyyyMMddHHmmssSSS``, without Arrow's point before the milliseconds."""
    first, last = pc.min_max(millis).as_py().values()
    if first is not None and not 0 <= first <= last <= _LAST_MILLI:
        path, expected = _RECORD_INDEX.stored_name, f"milliseconds from 0 to {_LAST_MILLI}"
        raise CorruptData(path, None, expected, f"{first} to {last}")
    moments = millis.cast(pa.timestamp("ms", zone))
    return pc.replace_substring(pc.strftime(moments, format="%Y%m%d%H%M%S"), ".", "")
