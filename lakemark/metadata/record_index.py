"""Reads the record index, which contains the location of each record key.

A file id that begins with a UUID is stored as the two halves of the UUID and the number after it.
Any other file id is stored as text. A location also has the instant of the commit that first wrote
the key to that file group, in milliseconds since 1970.
Source: ``HoodieRecordIndexInfo``, ``getLocationFromRecordIndexInfo`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.hfile.selection import Everything, Keys, Selection
from lakemark.errors import CorruptData
from lakemark.execution.runner import LocalRunner
from lakemark.metadata.index_definition import is_partitioned
from lakemark.metadata.metadata_file_lister import MetadataFileLister
from lakemark.metadata.metadata_table import MetadataTable, Part
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.metadata.partition_shards import has_no_series, path_of_series, series_of_paths
from lakemark.metadata.shards import by_shard, shard_series, shards_of
from lakemark.metadata.slice_rows import KEY, PAYLOAD
from lakemark.model.file_slice import FileSlice
from lakemark.timeline.clock import UTC_CLOCK, TimelineClock

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
_AS_UUID = 0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: A day before the end of the year 9999, so that it is in this year in every time zone.
_LAST_MILLI = 253_402_214_399_999
_NO_NUMBER = -1


@dataclass(frozen=True)
class RecordIndex:
    """Reads the partition ``record_index``.

    Attributes:
        metadata: the metadata table that contains the index.
        clock: the clock of the table, in whose time zone instant times are formatted.
    """

    metadata: MetadataTable
    clock: TimelineClock = UTC_CLOCK

    @property
    def is_partitioned(self) -> bool:
        """Whether a key is unique only within a partition of the table."""
        return is_partitioned(self.metadata.definitions)

    def lookup(
        self, record_keys: pa.Array, partition_paths: Collection[str] | None = None
    ) -> pa.Table:
        """Return the locations of those keys that the table contains, in no particular order.

        Only blocks that may contain a key are read.

        Args:
            record_keys: strings, in any order; a key may occur repeatedly. Nulls match nothing.
            partition_paths: the only partitions to search, if keys are unique only within a
                partition; ignored otherwise. None to search all partitions.

        Returns:
            A table with the schema ``LOCATIONS``.

        Raises:
            SnapshotChanged: the metadata table was compacted in the meantime; open it again.
            CorruptData: bytes of the metadata table do not match the format.
        """
        wanted = Keys.of_any(record_keys)
        if partition_paths is None or not self.is_partitioned:
            parts: Sequence[Part] = self._parts(wanted)
        else:
            known = [one for path in set(partition_paths) for one in self.series.get(path, ())]
            parts = by_shard(known, wanted)
        found = LocalRunner().map(lambda part: [*self._locations([part])], parts)
        return pa.concat_tables([LOCATIONS.empty_table(), *chain.from_iterable(found)])

    @cached_property
    def series(self) -> Mapping[str, Sequence[FileSlice]]:
        """The file groups of the index for each partition of the table that has rows.

        A partition with rows is missing only if the index was damaged, or dropped in the meantime.
        Series that a pending commit has created are omitted, because a rollback removes them. The
        keys must be unique only within a partition.

        Raises:
            SnapshotChanged, CorruptData: as for ``lookup``.
        """
        found = series_of_paths(self.metadata.slices(_RECORD_INDEX.stored_name))
        is_valid = self.metadata.rows.is_valid
        return {path: one for path, one in found.items() if _are_begun(one, is_valid)}

    def count_groups(self) -> dict[str, int]:
        """Return the number of file groups of each series; see ``series``."""
        return {path: len(one) for path, one in self.series.items()}

    def find_damage(self) -> str | None:
        """Return why the file groups of the index do not fit the table; None if they fit.

        Only an index whose keys are unique only within a partition is checked: each partition with
        files must have file groups in the index.

        Raises:
            SnapshotChanged: as for ``lookup``.
            CorruptData: the metadata table's list of files cannot be read.
        """
        if not self.is_partitioned:
            return None
        try:
            series = self.series
        except CorruptData as error:
            return str(error)
        lister = MetadataFileLister(self.metadata)
        unknown = set(lister.list_partitions()) - series.keys()
        listed = lister.list_some(unknown) if unknown else {}
        lost = sorted(path for path, files in listed.items() if files)
        return has_no_series(lost[0]) if lost else None

    def scan(self) -> Iterator[pa.Table]:
        """Yield the locations of all keys, as ``LOCATIONS``; errors as for ``lookup``."""
        yield from self._locations(self._parts(None))

    def scan_shards(self) -> Iterator[tuple[FileSlice, pa.Table, pa.Array]]:
        """Yield the locations of all keys by file group of the index; errors as for ``lookup``.

        Each file group has one or more tables with the schema ``LOCATIONS``, and for each location
        whether a lookup of its key finds it, which depends on the file group.
        """
        series_by_prefix = shard_series(self.metadata.slices(_RECORD_INDEX.stored_name))
        for prefix, series in series_by_prefix.items():
            for number, one in enumerate(series):
                for rows in self._locations([(one, Everything())]):
                    shards = shards_of(rows["record_key"].combine_chunks(), len(series))
                    are_found = pa.array(shards == number)
                    if self.is_partitioned:
                        paths = rows["partition_path"].combine_chunks()
                        are_here = pc.equal(paths, path_of_series(prefix))
                        are_found = pc.and_(are_found, are_here)
                    yield one, rows, are_found

    def _parts(self, selection: Selection | None) -> Sequence[Part]:
        return self.metadata.parts(_RECORD_INDEX.stored_name, selection)

    def _locations(self, parts: Sequence[Part]) -> Iterator[pa.Table]:
        for rows in self.metadata.newest(parts, _RECORD_INDEX.payload):
            if rows.num_rows:
                yield _locations(rows, self.clock)


def _are_begun(series: Iterable[FileSlice], is_valid: Callable[[str], bool]) -> bool:
    """Return whether a valid commit or a compaction has written each slice."""
    return all(
        one.base is not None or any(is_valid(log.name.instant) for log in one.logs)
        for one in series
    )


def _locations(rows: pa.Table, clock: TimelineClock) -> pa.Table:
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
        _instants(pc.struct_field(payload, "instantTime"), clock),
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


def _instants(millis: pa.Array, clock: TimelineClock) -> pa.Array:
    """Format times, in milliseconds since 1970, as instant times.

    Arrow could format them, but its rules for summer time end in 2037.
    """
    first, last = pc.min_max(millis).as_py().values()
    if first is not None and not 0 <= first <= last <= _LAST_MILLI:
        path, expected = _RECORD_INDEX.stored_name, f"milliseconds from 0 to {_LAST_MILLI}"
        raise CorruptData(path, None, expected, f"{first} to {last}")
    # A commit adds many keys, and formatting was a fourth of the time of a lookup.
    times = pc.dictionary_encode(millis)
    texts = [None if one is None else _instant(one, clock) for one in times.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(times.indices)


def _instant(millis: int, clock: TimelineClock) -> str:
    return clock.format(_EPOCH + timedelta(milliseconds=millis))
