"""A batch is published only if each of its offsets is accounted for."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoints.checkpoint import KafkaCheckpoint
from lakemark.config import keys
from lakemark.config.table_properties import TableType
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from sinks.audit import Audit, AuditFailed, ChangeCounts, OffsetGap, RecordsRead, Spans, audit
from sinks.batch import KafkaBatch
from sinks.hudi.exchange import BucketWritten, OpenWrite, PortionKind, PortionResult, Prepare
from sinks.reject_limit import RejectLimit
from tests.json_stream import InThisProcess, JsonStream

records = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50)), unique=True, max_size=30)


def chunk(listed: list[tuple[int, int]]) -> pa.Table:
    partitions, offsets = [p for p, _ in listed], [o for _, o in listed]
    columns = {
        "partition": pa.array(partitions, pa.int32()),
        "offset": pa.array(offsets, pa.int64()),
    }
    return pa.table(columns)


def orders(offsets: Mapping[int, int]) -> KafkaCheckpoint:
    return KafkaCheckpoint("orders", offsets)


def spans(start: Mapping[int, int], end: Mapping[int, int]) -> Spans:
    return KafkaBatch(records=cast(Any, None), start=orders(start), end=orders(end)).spans


def check(begin: Mapping[int, int], end: Mapping[int, int], *numbers: Any) -> Audit:
    return audit("batch 7", spans(begin, end), *numbers)


@given(records, st.integers(0, 30))
def test_counts_of_chunks_are_the_count_of_all(listed: list[tuple[int, int]], cut: int) -> None:
    parts = [RecordsRead.in_chunk(chunk(part)) for part in (listed[:cut], listed[cut:])]
    read = RecordsRead.of(part.to_table() for part in parts)
    assert read.count == len(listed)
    counted = Counter(p for p, _ in listed)
    assert {p: one.count for p, one in read.partitions.items()} == counted
    for partition, one in read.partitions.items():
        offsets = [o for p, o in listed if p == partition]
        assert (one.first, one.last) == (min(offsets), max(offsets))


@given(records, st.permutations(range(4)))
def test_the_lowest_and_the_widest_gap_of_each_partition_are_found(
    listed: list[tuple[int, int]], order: list[int]
) -> None:
    """Gaps are found, whatever the order in which the chunks of a partition arrive."""
    listed.sort()
    cuts = [0, len(listed) // 4, len(listed) // 2, len(listed), len(listed)]
    chunks = [listed[cuts[n] : cuts[n + 1]] for n in order]
    read = RecordsRead.of(RecordsRead.in_chunk(chunk(part)).to_table() for part in chunks)
    assert read == RecordsRead.in_chunk(chunk(listed))
    found = read.gaps(dict.fromkeys(range(4), (0, 51)))
    for partition in range(4):
        missing = sorted(set(range(51)) - {o for p, o in listed if p == partition})
        first = [offset for offset in missing if offset - 1 not in missing]
        expected = [
            (begin, next(o for o in range(begin, 52) if o not in missing)) for begin in first
        ]
        told = [(gap.begin, gap.end) for gap in found if gap.partition == partition]
        assert set(told) <= set(expected)
        assert told[0] == min(expected)
        assert max(e - b for b, e in told) == max(e - b for b, e in expected)


def test_a_plain_topic_has_no_gaps() -> None:
    read = RecordsRead.in_chunk(chunk([(0, n) for n in range(5, 9)]))
    assert read.gaps(spans({0: 5}, {0: 9})) == []
    assert read.gaps(spans({0: 4}, {0: 9, 1: 2})) == [
        OffsetGap(0, 4, 5),
        OffsetGap(1, 0, 2),
    ]


def test_chunks_that_overlap_leave_no_gap_where_one_has_records() -> None:
    parts = [[(0, 0), (0, 9)], [(0, n) for n in range(1, 9)]]
    read = RecordsRead.of(RecordsRead.in_chunk(chunk(part)).to_table() for part in parts)
    assert read.partitions[0].gaps == ()


@given(records, st.integers(0, 40), st.integers(0, 40))
def test_the_parts_of_a_batch_add_up(
    listed: list[tuple[int, int]], rejected: int, written: int
) -> None:
    rejected, arrived = min(rejected, len(listed)), max(len(listed) - rejected, 0)
    written = min(written, arrived)
    read = RecordsRead.in_chunk(chunk(listed))
    found = audit("all", dict.fromkeys(range(4), (0, 51)), read, arrived, written, rejected)
    assert found.offsets == 4 * 51 == found.records + found.skipped
    assert found.records == found.written + found.merged + found.rejected

    assert Audit.in_commit({keys.AUDIT: found.to_json()}) == found


def test_lost_offsets_are_not_skipped_ones() -> None:
    found = Audit(offsets=9, records=4, written=4, merged=0, rejected=0, skipped=5)
    lost = found.with_lost([{"count": 3}, {"count": None}])
    assert (lost.skipped, lost.lost) == (2, 3)
    older = json.loads(found.to_json())
    del older["lost"]
    assert Audit.in_commit({keys.AUDIT: json.dumps(older)}) == found


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"offsets": 1}'])
def test_what_is_no_audit_is_none(text: str) -> None:
    assert Audit.in_commit({}) is None
    assert Audit.in_commit({keys.AUDIT: text}) is None


READ = RecordsRead.in_chunk(chunk([(0, 5), (0, 7), (1, 0)]))


@pytest.mark.parametrize(
    ("end", "numbers", "told"),
    [
        (
            {0: 8, 1: 1},
            (4, 3, 0),
            "3 records were read, but 4 accepted and 0 rejected records arrived",
        ),
        (
            {0: 8, 1: 1},
            (2, 2, 0),
            "3 records were read, but 2 accepted and 0 rejected records arrived",
        ),
        ({0: 8, 1: 1}, (2, 3, 1), "3 changes were written, but only 2 arrived"),
        ({0: 7, 1: 1}, (3, 3, 0), "partition 0 gave 2 records from offset 5 to 7"),
        ({0: 8}, (3, 3, 0), "partition 1 gave 1 records from offset 0 to 0"),
    ],
)
def test_a_contradiction_has_a_name(
    end: dict[int, int], numbers: tuple[int, int, int], told: str
) -> None:
    with pytest.raises(AuditFailed, match=told):
        check({0: 5}, end, READ, *numbers)


def test_changes_that_moves_drop_and_add_are_accounted_for() -> None:
    keys_of_changes = pa.chunked_array([["a", "b"], ["a"]])
    counts = ChangeCounts.of_folded(keys_of_changes, late=0, absent=1, moved=1)
    assert ChangeCounts.from_table(counts.to_table()) == counts
    assert (counts.repeated, counts.to_write) == (1, 2)
    begin, end = {0: 5}, {0: 8, 1: 1}
    found = check(begin, end, READ, 2, 2, 0, counts)
    assert (found.records, found.written, found.merged, found.skipped) == (3, 1, 2, 1)
    for arrived in (1, 3):
        with pytest.raises(AuditFailed, match=rf"1 repeated.* are 2 to write, but {arrived} arr"):
            check(begin, end, READ, arrived, 1, 0, counts)
    with pytest.raises(AuditFailed, match="3 records were read, but 2 accepted"):
        check(begin, end, READ, 2, 2, 0, replace(counts, changes=2, repeated=0))


@pytest.mark.parametrize("table_type", TableType)
def test_a_commit_says_what_became_of_its_records(table_type: TableType) -> None:
    stream = JsonStream(place(), table_type=table_type)
    stream.write([{"id": k, "ts": ts} for ts in (1, 2) for k in ("a", "b")])
    stream.write([{"id": "a", "ts": 3}, b"broken", {"id": "c", "ts": 1}])
    assert [tuple(one.values()) for one in audits(stream)] == [
        (4, 4, 2, 2, 0, 0, 0, 0),
        (3, 3, 2, 0, 1, 0, 0, 0),
    ]
    assert list(audits(stream)[0]) == [
        "offsets",
        "records",
        "written",
        "merged",
        "rejected",
        "skipped",
        "ignored",
        "lost",
    ]


def test_ignored_tombstones_are_counted_and_are_no_rejects() -> None:
    stream = JsonStream(place(), limit=RejectLimit(0.0), ignores_tombstones=True)
    result = stream.write([None, {"id": "a", "ts": 1}, None, {"id": "a", "ts": 2}])
    assert (result.records, result.rejected, result.ignored, result.rows) == (4, 0, 2, 1)
    stream.write([None])
    (first, second) = audits(stream)
    assert first == {"offsets": 4, "records": 4, "written": 1, "merged": 1, "rejected": 0} | {
        "skipped": 0,
        "ignored": 2,
        "lost": 0,
    }
    assert (second["records"], second["ignored"]) == (1, 1)
    assert stream.read() == {"a": {"id": "a", "ts": 2}}


def test_commit_of_an_earlier_version_has_no_ignored_records() -> None:
    numbers = {"offsets": 1, "records": 1, "written": 1, "merged": 0, "rejected": 0, "skipped": 0}
    found = Audit.in_commit({keys.AUDIT: json.dumps(numbers)})
    assert found is not None
    assert found.ignored == 0


def test_ignored_record_that_is_lost_contradicts_the_count() -> None:
    read = RecordsRead.in_chunk(chunk([(0, 5), (0, 7), (1, 0)]), {0: 1})
    ends = {0: 8, 1: 1}
    assert check({0: 5}, ends, read, 2, 2, 0).ignored == 1
    told = "3 records were read, but 3 accepted and 0 rejected records arrived, and 1 were ignored"
    with pytest.raises(AuditFailed, match=told):
        check({0: 5}, ends, read, 3, 3, 0)


class LosesOne(InThisProcess):
    """An exchange that loses one change between reading and writing."""

    def run(
        self, batch: KafkaBatch, prepare: Prepare, open_write: OpenWrite
    ) -> list[PortionResult]:
        written = super().run(batch, prepare, open_write)
        n, one = next(
            (n, one)
            for n, one in enumerate(written)
            if isinstance(one, BucketWritten) and one.kind is PortionKind.ROWS and one.arrived
        )
        written[n] = replace(one, arrived=one.arrived - 1)
        return written


def test_a_batch_that_lost_a_record_on_the_way_is_not_published() -> None:
    stream = JsonStream(place(), exchange=LosesOne())
    with pytest.raises(
        AuditFailed, match="3 records were read, but 2 accepted and 0 rejected records arrived"
    ):
        stream.write([{"id": key, "ts": 1} for key in "abc"])
    assert audits(stream) == []
    assert not open_table(stream.location).timeline.pending()


def place() -> StorageLocation:
    return StorageLocation(f"memory://{uuid4().hex}/orders")


def audits(stream: JsonStream) -> list[dict[str, int]]:
    table = open_table(stream.location)
    commits = [table.store.read_commit(i) for i in table.timeline.completed() if i.action.is_ingest]
    return [json.loads(commit.extra_metadata[keys.AUDIT]) for commit in commits]
