"""How the changes of a batch reach their buckets, in both exchanges, without Spark."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark.execution.runner import LocalRunner
from lakemark.model.file_names import BaseFileName, LogFileName
from lakemark.model.file_slice import BaseFile, FileGroupId, FileSlice, LogFile
from lakemark.operations.file_group_assigner import FileGroupAssignment, SharedGroups
from lakemark.write.partitioner import Bucket, sort_by_bucket, task_of
from sinks.hudi import arrived_rows
from sinks.hudi.arrived_rows import ArrivedRows, TableInMemory
from sinks.hudi.exchange import Portion, PortionKind, PortionResult, write_buckets
from sinks.hudi.prepare import BucketWriter, WriteBuckets
from sinks.hudi.spark_exchange import Mapper, Reducer, as_payload, messages, routes

BUCKETS = 5
PATHS = st.sampled_from(["", "eu", "us", "asia/japan"])
#: For each row: partition path, bucket number, and kind.
ROWS = st.lists(
    st.tuples(
        PATHS,
        st.integers(0, BUCKETS - 1),
        st.sampled_from([PortionKind.ROWS, PortionKind.REJECTS, PortionKind.KEYS]),
    ),
    min_size=1,
    max_size=40,
)

Contents = dict[tuple[PortionKind, Bucket], list[int]]


@dataclass(frozen=True)
class PrepareRows:
    """The records already have path, bucket number and kind."""

    def __call__(self, records: pa.Table, tasks: int) -> list[Portion]:
        return [
            Portion(
                kind, sort_by_bucket(rows["path"], rows["number"].to_numpy(), rows, tasks, kind)
            )
            for kind in PortionKind
            if (rows := records.filter(pa.array(records["kind"].to_numpy() == kind))).num_rows
        ]


@dataclass(frozen=True)
class Remember:
    """Returns what it is asked to write; a list is no result, but goes the same way."""

    def __call__(
        self, kind: PortionKind, bucket: Bucket, tables: Iterable[pa.Table]
    ) -> PortionResult:
        offsets = [offset for table in tables for offset in table["offset"].to_pylist()]
        return kind, bucket, offsets  # type: ignore[return-value]

    def place(self, portions: Sequence[Portion]) -> tuple[Remember, Sequence[Portion]]:
        return self, portions

    def for_tasks(self, tasks: int) -> list[Remember]:
        return [self] * tasks


def raw(rows: list[tuple[str, int, PortionKind]], first: int) -> pa.Table:
    paths, numbers, kinds = zip(*rows, strict=True)
    return pa.table(
        {
            "path": paths,
            "number": pa.array(numbers, pa.int32()),
            "kind": pa.array(list(map(int, kinds)), pa.int8()),
            "partition": pa.array([0] * len(rows), pa.int32()),
            "offset": range(first, first + len(rows)),
        }
    )


def expected(rows: list[tuple[str, int, PortionKind]]) -> Contents:
    contents: Contents = defaultdict(list)
    for offset, (path, number, kind) in enumerate(rows):
        contents[kind, Bucket(path, number)].append(offset)
    return contents


def written(results: Iterable[Any]) -> Contents:
    contents: Contents = {}
    for kind, bucket, offsets in results:
        assert (kind, bucket) not in contents, "a bucket is written once"
        contents[kind, bucket] = offsets
    return contents


@pytest.mark.parametrize("least_rows", [1, 1_000], ids=["sliced", "gathered"])
@pytest.mark.parametrize("max_bytes", [1, 300, 1 << 30])
@given(chunks=st.lists(ROWS, min_size=1, max_size=4))
def test_every_bucket_is_written_once_with_its_rows_in_order_of_arrival(
    least_rows: int, max_bytes: int, chunks: list[list[tuple[str, int, PortionKind]]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrived_rows, "_MIN_ROWS_OF_A_SLICE", least_rows)
        tables: dict[PortionKind, list[TableInMemory]] = defaultdict(list)
        first = 0
        for chunk in chunks:
            for portion in PrepareRows()(raw(chunk, first), 1):
                tables[portion.kind].append(TableInMemory(portion.content))
            first += len(chunk)
        arrived = {kind: ArrivedRows(some) for kind, some in tables.items()}
        results = write_buckets(arrived, Remember(), LocalRunner(2), max_bytes)
    assert written(results) == expected([row for chunk in chunks for row in chunk])


@pytest.mark.parametrize("max_payload_bytes", [100, 1 << 20])
@given(chunks=st.lists(ROWS, min_size=1, max_size=3), tasks=st.integers(1, 4), data=st.data())
def test_reduce_tasks_write_what_the_map_tasks_have_read(
    max_payload_bytes: int,
    chunks: list[list[tuple[str, int, PortionKind]]],
    tasks: int,
    data: st.DataObject,
) -> None:
    """The shuffle may bring the payloads in any order."""
    mapper = pickle.loads(pickle.dumps(Mapper(PrepareRows(), routes(tasks), max_payload_bytes)))
    payloads = [as_payload(values) for values in messages(routes(tasks), Remember())]
    first = 0
    for chunk in chunks:  # of a map task each
        payloads += mapper(raw(chunk, first).to_batches())
        first += len(chunk)
    by_route: dict[int, list[pa.RecordBatch]] = defaultdict(list)
    for payload in data.draw(st.permutations(payloads)):
        by_route[payload["route"][0].as_py()].append(payload)
    results = list[object]()
    for number, route in enumerate(routes(tasks)):
        (row,) = Reducer()(by_route[route])
        own = pickle.loads(row["written"][0].as_py())
        assert all(task_of(bucket, tasks, kind) == number for kind, bucket, _ in own)
        results += own
    assert written(results) == expected([row for chunk in chunks for row in chunk])


def test_a_payload_that_arrives_twice_is_counted_twice() -> None:
    """So the audit notices it."""
    (payload,) = Mapper(PrepareRows(), routes(1), 1 << 20)(
        raw([("eu", 1, PortionKind.ROWS)], 7).to_batches()
    )
    (message,) = messages(routes(1), Remember())
    (row,) = Reducer()([payload, as_payload(message), payload])
    assert pickle.loads(row["written"][0].as_py()) == [(PortionKind.ROWS, Bucket("eu", 1), [7, 7])]


def test_tables_with_different_columns_are_not_gathered() -> None:
    chunks = [raw([("eu", 1, PortionKind.ROWS)] * 2, 0), raw([("eu", 1, PortionKind.ROWS)] * 2, 2)]
    chunks[1] = chunks[1].append_column("more", [[1, 2]])
    tables = [TableInMemory(PrepareRows()(chunk, 1)[0].content) for chunk in chunks]
    (group,) = ArrivedRows(tables).groups(1 << 20)
    assert [table.num_columns for table in group.read(0)] == [5, 6]


@pytest.mark.parametrize("least_rows", [1, 1_000], ids=["sliced", "gathered"])
@given(sizes=st.lists(st.sampled_from([1, 10, 5_000]), min_size=1, max_size=30), data=st.data())
def test_a_group_is_not_larger_than_allowed_even_if_rows_differ_in_size(
    least_rows: int, sizes: list[int], data: st.DataObject
) -> None:
    numbers = [data.draw(st.integers(0, 7)) for _ in sizes]
    rows = pa.table({"value": ["x" * size for size in sizes]})
    paths = pa.repeat("eu", len(sizes))
    ordered = sort_by_bucket(paths, np.array(numbers, np.int32), rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrived_rows, "_MIN_ROWS_OF_A_SLICE", least_rows)
        groups = list(ArrivedRows([TableInMemory(ordered)] * 3).groups(4_000))
    lengths = [
        [pc.sum(pc.binary_length(t["value"])).as_py() for n in range(len(one)) for t in one.read(n)]
        for one in groups
    ]
    assert sum(map(sum, lengths)) == 3 * sum(sizes)
    for one, bytes_of_buckets in zip(groups, lengths, strict=True):
        assert len(one) == 1 or sum(bytes_of_buckets) <= 4_000


def test_two_long_rows_among_many_short_ones_are_in_two_groups() -> None:
    rows = pa.table({"value": ["x" * 5_000, "y" * 5_000, *["z"] * 98]})
    numbers = np.array([0, 1, *[2] * 98], np.int32)
    ordered = sort_by_bucket(pa.repeat("eu", 100), numbers, rows)
    groups = [len(one) for one in ArrivedRows([TableInMemory(ordered)]).groups(8_000)]
    assert groups[0] == 1
    assert sum(groups) == 3


@given(st.integers(1, 5), st.booleans(), st.sampled_from([None, SharedGroups("20260101")]))
def test_a_task_gets_the_file_groups_of_its_buckets_only(
    tasks: int, looks_up: bool, shared: SharedGroups | None
) -> None:
    slices = {bucket: file_slice(bucket) for bucket in all_buckets()}
    waiting = file_slice(Bucket("eu", 3))
    assignment = FileGroupAssignment(
        slices, frozenset({"eu", "us"}), {waiting.group: waiting}, shared=shared
    )
    writer = BucketWriter(None, assignment)  # type: ignore[arg-type]
    parts = WriteBuckets(writer, writer, looks_up).for_tasks(tasks)
    assert len(parts) == tasks
    for bucket, own in slices.items():
        part = parts[task_of(bucket, tasks, PortionKind.ROWS)]
        assert part.rows.assignment.task(bucket) == assignment.task(bucket)
        assert own.group not in part.rows.assignment.readable or bucket == Bucket("eu", 3)
        letters = parts[task_of(bucket, tasks, PortionKind.REJECTS)].rejects
        assert letters is not None
        assert letters.assignment.task(bucket) == assignment.task(bucket)
    new = Bucket("fr", 1)
    part = parts[task_of(new, tasks, PortionKind.ROWS)]
    assert part.rows.assignment.task(new) == assignment.task(new)
    for number in range(BUCKETS):
        part = parts[task_of(Bucket("", number), tasks, PortionKind.KEYS)]
        if looks_up:
            assert part.rows.assignment.groups_in(number) == assignment.groups_in(number)
    total = sum(len(part.rows.assignment.slices) for part in parts)
    assert total <= len(slices) * (2 if looks_up else 1)


def test_a_pickled_file_slice_is_the_same() -> None:
    group = FileGroupId("eu", "00000001-aaaa-0")
    base = BaseFile("eu", BaseFileName("00000001-aaaa-0", "1-0-1", "20260101", "orc"), 5)
    logs = tuple(
        LogFile("eu", LogFileName("00000001-aaaa-0", "20260102", number, token, is_cdc), number)
        for number, token, is_cdc in [(1, None, False), (2, "3-0-1", True)]
    )
    for one in (FileSlice(group, "20260101"), FileSlice(group, "20260101", base, logs)):
        assert pickle.loads(pickle.dumps(one)) == one


def file_slice(bucket: Bucket) -> FileSlice:
    return FileSlice(FileGroupId(bucket.partition_path, f"{bucket.number:08d}-a-0"), "20260101")


def all_buckets() -> list[Bucket]:
    return [Bucket(path, number) for path in ("eu", "us") for number in range(BUCKETS)]


@given(st.lists(st.tuples(PATHS, st.integers(0, BUCKETS - 1)), min_size=1), st.data())
def test_spans_of_a_slice_name_the_rows_of_each_bucket(
    rows: list[tuple[str, int]], data: st.DataObject
) -> None:
    paths, numbers = zip(*rows, strict=True)
    table = pa.table({"path": paths, "number": numbers})
    ordered = sort_by_bucket(table["path"], np.array(numbers, np.int32), table, 3)
    start = data.draw(st.integers(0, len(rows) - 1))
    stop = data.draw(st.integers(start + 1, len(rows)))
    spans = ordered.spans.of_rows(start, stop)
    named = [
        (spans.bucket(n).partition_path, spans.bucket(n).number)
        for n in range(len(spans))
        for _ in range(int(spans.starts[n]), int(spans.starts[n + 1]))
    ]
    assert named == [tuple(row.values()) for row in ordered.rows.to_pylist()[start:stop]]
