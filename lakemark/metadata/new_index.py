"""The first records of an index that is being built for a table with rows.

The records of an index come from sources: the rows of each file slice, or each data file. The
sources can be read while other writers commit. Later, under the table's lock, only those sources
are read again that have changed since. Source: ``initializeFromFilesystem`` of
``HoodieBackedTableMetadataWriter``, Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.hfile import Entries
from lakemark.errors import Refused
from lakemark.metadata.metadata_files import BaseContent
from lakemark.metadata.metadata_store import CREATED_MS_OF_FIRST, FirstRecords
from lakemark.metadata.partition_shards import series_prefix
from lakemark.metadata.record_changes import HashedPart, do_without_index
from lakemark.metadata.shards import file_ids, shards_of
from lakemark.metadata.spilled_entries import SpilledEntries
from lakemark.storage.parallel_requests import request_all
from lakemark.storage.storage import Storage

#: The most bytes of keys in a file group, on average, if its number of records is small.
_GROUP_KEY_BYTES = 512 << 20

#: The number of small sources that are read at the same time.
_READ_AT_ONCE = 16


class Source(NamedTuple):
    """A part of a table from which some records of an index come.

    Attributes:
        name: the name of the part, such as the path of a file; for errors and to compare sources.
        state: differs if the records of the part may have changed.
        read: reads the records.
        file_id_prefix: the prefix of the ids of the file groups that contain the records.
    """

    name: str
    state: Hashable
    read: Callable[[], Iterable[Entries]]
    file_id_prefix: str


@dataclass(frozen=True, slots=True)
class NewIndex:
    """An index that is being built.

    Attributes:
        partition: the partition of the metadata table that will contain the index.
        file_id_prefix: the prefix of the ids of its file groups.
        group_count: returns the number of file groups for a number of records.
        are_unique: whether two sources must not have records of the same key.
        are_small: whether each source is so small that many are read at the same time.
        hashed_part: see ``RecordChanges``.
        is_partitioned: whether each partition of the data table has its own file groups
            (``partition_shards``), in which its keys are unique.
    """

    partition: str
    file_id_prefix: str
    group_count: Callable[[int], int]
    are_unique: bool = False
    are_small: bool = False
    hashed_part: HashedPart | None = None
    is_partitioned: bool = False

    def prefix_for(self, partition_path: str) -> str:
        """Return the prefix of the ids of the file groups for a partition of the data table."""
        return series_prefix(partition_path) if self.is_partitioned else self.file_id_prefix


@dataclass(frozen=True, slots=True)
class _StoredBase:
    """A base file on local disk, and the number of its records."""

    path: Path
    count: int

    def read(self) -> BaseContent:
        return BaseContent(self.path.read_bytes(), self.count)


@dataclass
class IndexContent:
    """The records of a new index, as far as its sources were read.

    Attributes:
        index: the index.
        storage: the data table's root.
        entries: the records on local disk.
    """

    index: NewIndex
    storage: Storage
    entries: SpilledEntries
    _numbers: dict[tuple[str, Hashable], int] = field(default_factory=dict)
    _names: list[str] = field(default_factory=list)
    _prefixes: list[str] = field(default_factory=list)
    _encoded: list[Path] = field(default_factory=list)

    def update(self, sources: Iterable[Source], check: Callable[[], None]) -> bool:
        """Read the sources that are new or have changed, and drop those that are gone.

        If this fails, it can be called again, and reads no source twice.

        Returns:
            Whether any source was read or dropped.

        Args:
            sources: all sources of the index.
            check: called before each source is read; raises to stop.

        Raises:
            SnapshotChanged: a file was deleted in the meantime; list the sources again.
            CorruptData, Unsupported: a file cannot be read.
            StorageUnavailable: the disk of the temporary folder is full.
        """
        current = {(source.name, source.state): source for source in sources}
        gone = self._numbers.keys() - current.keys()
        for one in gone:
            self.entries.drop(self._numbers.pop(one))
        new = [source for key, source in current.items() if key not in self._numbers]
        at_once = _READ_AT_ONCE if self.index.are_small else 1
        for first in range(0, len(new), at_once):
            check()
            self._read(new[first : first + at_once])
        return bool(gone or new)

    def encode(self) -> FirstRecords:
        """Encode the base files of the index on local disk, so that writing them cannot fail.

        The files of an earlier call are removed, so its result cannot be read any more.

        Raises:
            Refused: two sources have the same key, but must not.
            StorageUnavailable: the disk of the temporary folder is full.
        """
        while self._encoded:
            self._encoded.pop().unlink(missing_ok=True)
        counts = self._group_counts()
        stored = [self._store(shard) for shard in self._shards(counts)]
        ids = [one for prefix, count in counts.items() for one in file_ids(prefix, count)]
        return FirstRecords(ids, lambda: (one.read() for one in stored))

    def _group_counts(self) -> dict[str, int]:
        """Return the number of file groups for each prefix of their ids."""
        sources: dict[str, list[int]] = {}
        if not self.index.is_partitioned:
            sources[self.index.file_id_prefix] = []
        for number in self._numbers.values():
            sources.setdefault(self._prefixes[number], []).append(number)
        return {prefix: self._group_count(sources[prefix]) for prefix in sorted(sources)}

    def _group_count(self, sources: Sequence[int]) -> int:
        by_count = self.index.group_count(self.entries.count_of(sources))
        return max(by_count, -(-self.entries.key_bytes_of(sources) // _GROUP_KEY_BYTES))

    def _store(self, shard: Iterable[Entries]) -> _StoredBase:
        base = BaseContent.of_parts(shard, CREATED_MS_OF_FIRST)
        self._encoded.append(self.entries.store(base.content))
        return _StoredBase(self._encoded[-1], base.count)

    def _read(self, sources: Sequence[Source]) -> None:
        if not self.index.are_small:
            for source in sources:
                self._add(source, source.read())
            return
        found = request_all(self.storage, lambda source: list(source.read()), sources)
        for source, parts in zip(sources, found, strict=True):
            self._add(source, parts)

    def _add(self, source: Source, parts: Iterable[Entries]) -> None:
        number = len(self._names)
        self._names.append(source.name)
        self._prefixes.append(source.file_id_prefix)
        try:
            for part in parts:
                self.entries.add(part, number)
        except BaseException:
            self.entries.drop(number)
            raise
        self._numbers[source.name, source.state] = number

    def _shards(self, counts: Mapping[str, int]) -> Iterator[Iterator[Entries]]:
        """Yield the records of each file group, given the numbers of file groups by prefix."""
        hashed, total = self.index.hashed_part, sum(counts.values())
        ends = np.cumsum([*counts.values()])
        firsts = dict(zip(counts, [0, *ends.tolist()], strict=False))
        # The number and the first file group of the series of each source; a dropped source has
        # no records.
        count_of = np.array([counts.get(prefix, 1) for prefix in self._prefixes], np.int64)
        first_of = np.array([firsts.get(prefix, 0) for prefix in self._prefixes], np.int64)

        def shards_of_records(
            keys: pa.BinaryArray, sources: npt.NDArray[np.int32]
        ) -> npt.NDArray[np.int64]:
            parts = keys if hashed is None else hashed(keys)
            return first_of[sources] + shards_of(parts, count_of[sources])

        for tables in self.entries.shards(total, shards_of_records):
            yield self._distinct(tables)

    def _distinct(self, tables: Iterable[pa.Table]) -> Iterator[Entries]:
        """Yield sorted records, each key once."""
        last: tuple[bytes, int] | None = None
        for table in tables:
            keys, values, sources = (column.combine_chunks() for column in table.columns)
            if last is not None:
                keys = pa.concat_arrays([pa.array([last[0]], pa.binary()), keys])
                values = pa.concat_arrays([values[:1], values])
                sources = pa.concat_arrays([pa.array([last[1]], pa.int32()), sources])
            is_again = pc.equal(keys[1:], keys[:-1])
            if self.index.are_unique:
                self._check_same_source(keys, sources, is_again)
            first = pa.array([last is None]) if len(keys) else pa.array([], pa.bool_())
            is_first = pa.concat_arrays([first, pc.invert(is_again)])
            if len(keys):
                last = keys[-1].as_py(), sources[-1].as_py()
            yield Entries(keys.filter(is_first), values.filter(is_first))

    def _check_same_source(
        self, keys: pa.Array, sources: pa.Array, is_again: pa.BooleanArray
    ) -> None:
        is_other = pc.and_(is_again, pc.not_equal(sources[1:], sources[:-1]))
        at = pc.index(is_other, True).as_py()
        if at >= 0:
            names = " and ".join(self._names[sources[n].as_py()] for n in (at, at + 1))
            message = (
                f"record key {keys[at].as_py().decode()!r} has a row in the file groups {names}, "
                "but a record index has one location of each key; remove one of the rows, or "
                f"{do_without_index(self.index.partition)}"
            )
            raise Refused(message)
