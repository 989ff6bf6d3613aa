"""The rows of one kind, as they arrive: tables that are sorted by bucket, one for each chunk.

If there are many buckets, each table has only a few rows of each bucket. Taking these rows out of
each table would cost more than everything else. So the rows of several buckets are gathered from
all tables, and sorted by bucket at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakemark.write.partitioner import Bucket, BucketSpans, SortedRows

#: Rows are gathered if a bucket has on average fewer rows than this in each table. To sort a row
#: again takes about 0.2 µs, and to read a slice of a table up to 60 µs.
_MIN_ROWS_OF_A_SLICE = 1_000

#: The maximum Arrow size of rows that are gathered at once. More do not fit the caches of a core.
_MAX_GATHERED_BYTES = 16 << 20

#: Groups are formed by the mean size of rows, so they should be smaller than allowed.
_FILLED = 0.8


class ArrivedTable(Protocol):
    """A table that is sorted by bucket."""

    @property
    def spans(self) -> BucketSpans:
        """The rows of each bucket."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        ...

    @property
    def size_bytes(self) -> int:
        """The Arrow size of all rows."""
        ...

    def read(self, start: int, stop: int) -> pa.Table:
        """Return the rows from ``start`` up to ``stop``."""
        ...


@dataclass(frozen=True, slots=True)
class TableInMemory:
    """A sorted table in the memory of this process."""

    sorted_rows: SortedRows

    @property
    def spans(self) -> BucketSpans:
        """See ``ArrivedTable.spans``."""
        return self.sorted_rows.spans

    @property
    def schema(self) -> pa.Schema:
        """See ``ArrivedTable.schema``."""
        return self.sorted_rows.rows.schema

    @property
    def size_bytes(self) -> int:
        """See ``ArrivedTable.size_bytes``."""
        return int(self.sorted_rows.rows.nbytes)

    def read(self, start: int, stop: int) -> pa.Table:
        """See ``ArrivedTable.read``."""
        return self.sorted_rows.rows.slice(start, stop - start)


@dataclass(frozen=True, slots=True)
class BucketGroup:
    """Consecutive buckets. A bucket is made only when it is asked for, because there are many.

    Attributes:
        arrived: all rows of the kind.
        first: the position of the first bucket.
        edges: the first row of each bucket in ``gathered``, and the number of all rows.
        gathered: the rows of all buckets; None to read each bucket from the tables.
    """

    arrived: ArrivedRows
    first: int
    edges: list[int]
    gathered: pa.Table | None

    def __len__(self) -> int:
        return len(self.edges) - 1

    def bucket(self, n: int) -> Bucket:
        """Return the nth bucket of the group."""
        return self.arrived.bucket(self.first + n)

    def read(self, n: int) -> Iterator[pa.Table]:
        """Yield the rows of the nth bucket in order of arrival."""
        if self.gathered is None:
            yield from self.arrived.read(self.first + n)
        else:
            start, stop = self.edges[n : n + 2]
            yield self.gathered.slice(start, stop - start)


class ArrivedRows:
    """All tables of one kind, and the rows of each bucket in these tables.

    Args:
        tables: the tables in order of arrival; at least one.
    """

    def __init__(self, tables: Sequence[ArrivedTable]) -> None:
        self._tables = tables
        self._paths = sorted({path for one in tables for path in one.spans.partition_paths})
        positions = {path: position for position, path in enumerate(self._paths)}
        self._width = 1 + max(int(one.spans.numbers.max()) for one in tables)
        self._codes = [self._codes_of(one.spans, positions) for one in tables]
        codes = np.concatenate(self._codes)
        order = np.argsort(codes, kind="stable")
        # One entry for each bucket of each table, sorted by bucket, and then by table.
        self._table_of = np.repeat(np.arange(len(tables)), [len(one.spans) for one in tables])[
            order
        ]
        self._start_of = np.concatenate([one.spans.starts[:-1] for one in tables])[order]
        self._stop_of = np.concatenate([one.spans.starts[1:] for one in tables])[order]
        self._buckets, self._firsts = np.unique(codes[order], return_index=True)
        self._ends = np.append(self._firsts[1:], len(order))

    def __len__(self) -> int:
        """Return the number of buckets."""
        return len(self._buckets)

    def is_one_group(self, max_bytes: int) -> bool:
        """Return whether ``groups`` yields one group."""
        return len(self._bounds(max_bytes)) == 1

    def groups(self, max_bytes: int) -> Iterator[BucketGroup]:
        """Yield all buckets with their rows, in ascending order and in groups.

        A group has at most ``max_bytes``, or it is one bucket. The rows of a group that consists of
        one bucket are read table by table.
        """
        for first, end in self._bounds(max_bytes):
            if self._gathers and end - first > 1:
                yield self._gather(first, end)
            else:
                yield BucketGroup(self, first, [*range(end - first + 1)], None)

    def bucket(self, position: int) -> Bucket:
        """Return the bucket at a position."""
        rank, number = divmod(int(self._buckets[position]), self._width)
        return Bucket(self._paths[rank], number)

    def read(self, position: int) -> Iterator[pa.Table]:
        """Yield the rows of the bucket at a position, table by table."""
        for entry in range(self._firsts[position], self._ends[position]):
            table = self._tables[self._table_of[entry]]
            yield table.read(int(self._start_of[entry]), int(self._stop_of[entry]))

    def _codes_of(self, spans: BucketSpans, positions: dict[str, int]) -> npt.NDArray[np.int64]:
        ranks = np.array([positions[path] for path in spans.partition_paths], np.int64)
        return ranks[spans.paths] * self._width + spans.numbers

    @cached_property
    def _gathers(self) -> bool:
        rows, slices = int((self._stop_of - self._start_of).sum()), len(self._table_of)
        schema = self._tables[0].schema
        return rows < _MIN_ROWS_OF_A_SLICE * slices and all(
            one.schema.equals(schema) for one in self._tables
        )

    def _bounds(self, max_bytes: int) -> list[tuple[int, int]]:
        """Return the first bucket of each group, and the bucket after its last one."""
        max_bytes = min(max_bytes, _MAX_GATHERED_BYTES) if self._gathers else max_bytes
        ends = self._estimate_ends(max_bytes * _FILLED)
        estimated = zip([0, *ends], ends, strict=False)
        return [bounds for one in estimated for bounds in self._split(*one, max_bytes)]

    def _estimate_ends(self, max_bytes: float) -> list[int]:
        """Return the end of each group, if all rows of a table have the same size."""
        row_bytes = np.array([one.size_bytes / one.spans.starts[-1] for one in self._tables])
        sizes = (self._stop_of - self._start_of) * row_bytes[self._table_of]
        totals = np.cumsum(sizes)[self._ends - 1]
        ends, before = list[int](), 0.0
        while not ends or ends[-1] < len(self):
            end = int(np.searchsorted(totals, before + max_bytes, "right"))
            ends.append(max(end, ends[-1] + 1 if ends else 1))
            before = float(totals[ends[-1] - 1])
        return ends

    def _split(self, first: int, end: int, max_bytes: int) -> Iterator[tuple[int, int]]:
        """Divide a group whose rows are larger than estimated."""
        if end - first == 1 or sum(t.nbytes for t in self._slices(first, end)) <= max_bytes:
            yield first, end
        else:
            middle = (first + end) // 2
            yield from self._split(first, middle, max_bytes)
            yield from self._split(middle, end, max_bytes)

    def _slices(self, first: int, end: int) -> Iterator[pa.Table]:
        """Yield the rows of consecutive buckets in each table, without copying them."""
        for number, table in enumerate(self._tables):
            begin, stop = self._positions(number, first, end)
            yield table.read(int(table.spans.starts[begin]), int(table.spans.starts[stop]))

    def _positions(self, table: int, first: int, end: int) -> tuple[int, int]:
        """Return which of its buckets a table has between two buckets."""
        bounds = self._buckets[first], self._buckets[end - 1] + 1
        begin, stop = np.searchsorted(self._codes[table], bounds)
        return int(begin), int(stop)

    def _gather(self, first: int, end: int) -> BucketGroup:
        """Copy the rows of consecutive buckets from all tables, and sort them by bucket."""
        codes = list[npt.NDArray[np.int64]]()
        for number, table in enumerate(self._tables):
            begin, stop = self._positions(number, first, end)
            counts = np.diff(table.spans.starts[begin : stop + 1])
            codes.append(np.repeat(self._codes[number][begin:stop], counts))
        tables = list(self._slices(first, end))
        rows, sorted_codes = _sort(tables, codes)
        starts = np.searchsorted(sorted_codes, self._buckets[first:end])
        return BucketGroup(self, first, [*starts.tolist(), len(sorted_codes)], rows)


def _sort(
    tables: list[pa.Table], codes: list[npt.NDArray[np.int64]]
) -> tuple[pa.Table, npt.NDArray[np.int64]]:
    """Sort the rows of several sorted tables by the codes of their buckets."""
    if len(tables) == 1:
        return tables[0], codes[0]
    all_codes = np.concatenate(codes)
    order = np.argsort(all_codes, kind="stable")
    return pa.concat_tables(tables).combine_chunks().take(pa.array(order)), all_codes[order]
