"""``table.partition_change: move``: a stream moves rows whose partition changes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lakemark.config import keys
from lakemark.config.table_properties import PROPERTIES_PATH, TableProperties, TableType
from lakemark.config.table_spec import TableSpec
from lakemark.errors import Refused, TableNotFound
from lakemark.operations import table_index
from lakemark.operations.coordination import Coordination
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.operations.write import RowWriter
from lakemark.storage import StorageLocation, open_storage
from lakemark.transaction.multi_writer import MultiWriter
from sinks.audit import Audit, AuditFailed
from sinks.batch import KafkaBatch
from sinks.hudi.exchange import OpenWrite, Portion, PortionKind, PortionResult, Prepare
from sinks.hudi.partition_rule import PartitionChange
from sinks.hudi.placement import PlacedChanges
from tests.depth import examples
from tests.json_stream import InThisProcess, JsonStream, Record, Tombstone
from tests.writers import SHARING

COLUMNS = {"id": "string", "ts": "bigint", "region": "string"}
RECORD_INDEX = "record_index"


def _opened(
    indexes: str, location: StorageLocation, spec: TableSpec, multi_writer: MultiWriter | None
) -> OpenTable:
    """Open a table; if it does not exist, create it with indexes in its metadata table."""
    coordination = Coordination(multi_writer=multi_writer)
    try:
        return open_table(location, coordination=coordination)
    except TableNotFound:
        values = dict(spec.to_properties().values)
        if spec.name == "orders" and indexes:
            values[keys.DROPPED_INDEXES] = indexes
        open_storage(location).create(PROPERTIES_PATH, TableProperties(values).to_bytes())
        return open_table(location, coordination=coordination)


def new_stream(
    table_type: TableType = TableType.MERGE_ON_READ,
    indexes: str = "",
    ordering: tuple[str, ...] = ("ts",),
    location: StorageLocation | None = None,
    multi_writer: MultiWriter | None = None,
) -> JsonStream:
    return JsonStream(
        location or StorageLocation(f"memory://{uuid4().hex}/orders"),
        columns=COLUMNS,
        table_type=table_type,
        ordering=ordering,
        partition_by=("region",),
        partition_change=PartitionChange.MOVE,
        index=None,
        multi_writer=multi_writer,
        metadata_table=bool(indexes),
        opened=partial(_opened, indexes),
    )


def row(key: str, region: str, ts: int) -> Record:
    return {"id": key, "region": region, "ts": ts}


def deleted(key: str, region: str | None, ts: int | None) -> Record:
    return {"id": key, "region": region, "ts": ts, "_hoodie_is_deleted": True}


def rows_of(stream: JsonStream) -> dict[str, tuple[str, int]]:
    table = open_table(stream.location)
    if table.schema is None:
        return {}
    found = table.scan(columns=["id", "region", "ts", "_hoodie_partition_path"]).to_table()
    assert found["region"] == found["_hoodie_partition_path"]
    listed = found.to_pylist()
    assert len({one["id"] for one in listed}) == len(listed), "a key is stored twice"
    return {one["id"]: (one["region"], one["ts"]) for one in listed}


# The model


@dataclass(frozen=True)
class Change:
    """A change of a key; without a time, it is unconditional."""

    key: str
    region: str
    ts: int | None
    kind: str = "row"

    @property
    def is_unconditional(self) -> bool:
        return self.kind != "row" and self.ts is None

    def record(self) -> Record | Tombstone:
        if self.kind == "tombstone":
            return Tombstone(self.key.encode())
        if self.kind == "deleted":
            return deleted(self.key, self.region, self.ts)
        assert self.ts is not None
        return row(self.key, self.region, self.ts)


@dataclass
class Model:
    """The partition and the ordering value of each key in the whole table."""

    is_ordered: bool
    rows: dict[str, tuple[str, int]] = field(default_factory=dict)

    def apply(self, batch: Iterable[Change]) -> int:
        """Apply a batch; return how many rows move."""
        folded: dict[str, Change] = {}
        for change in batch:
            before = folded.get(change.key)
            if before is None or self._wins(change, before.ts):
                folded[change.key] = change
        return sum(self._apply(change) for change in folded.values())

    def _wins(self, change: Change, older: int | None) -> bool:
        if not self.is_ordered or change.is_unconditional or older is None:
            return True
        assert change.ts is not None
        return change.ts >= older

    def _apply(self, change: Change) -> bool:
        stored = self.rows.get(change.key)
        if stored and not self._wins(change, stored[1]):
            return False
        if change.kind != "row":
            self.rows.pop(change.key, None)
            return False
        assert change.ts is not None
        self.rows[change.key] = change.region, change.ts
        return stored is not None and stored[0] != change.region


REGIONS, TIMES = st.sampled_from(["x", "y", "z"]), st.integers(1, 6)
NAMES = st.sampled_from("abcd")
CHANGES = st.one_of(
    st.builds(Change, NAMES, REGIONS, TIMES),
    st.builds(Change, NAMES, REGIONS, TIMES),
    st.builds(Change, NAMES, REGIONS, TIMES | st.none(), st.just("deleted")),
    st.builds(Change, NAMES, st.just(""), st.none(), st.just("tombstone")),
)
STEPS = st.lists(
    st.lists(CHANGES, min_size=1, max_size=7) | st.sampled_from(["compact", "restart"]),
    min_size=2,
    max_size=7,
)
#: In one batch, a key changes its partition at the same time; the record that arrives last wins.
SAME_TIME: list[list[Change] | str] = [
    [Change("a", "y", 1)],
    [Change("a", "z", 2), Change("a", "y", 2), Change("a", "x", 2)],
]


@settings(max_examples=examples(20), deadline=None)
@given(STEPS, st.sampled_from(TableType), st.booleans(), st.sampled_from(["", RECORD_INDEX]))
@example(SAME_TIME, TableType.MERGE_ON_READ, True, "")
@example(SAME_TIME, TableType.COPY_ON_WRITE, False, RECORD_INDEX)
def test_rows_are_those_of_the_model(
    steps: list[list[Change] | str], table_type: TableType, is_ordered: bool, indexes: str
) -> None:
    ordering = ("ts",) if is_ordered else ()
    stream, model = new_stream(table_type, indexes, ordering), Model(is_ordered)
    for step in steps:
        if isinstance(step, list):
            result = stream.write([change.record() for change in step])
            assert result.moved == model.apply(step)
            assert (result.records, result.rejected) == (len(step), 0)
            check_audit(stream, len(step))
        elif step == "restart":
            stream = new_stream(table_type, indexes, ordering, stream.location)
        elif table_type is TableType.MERGE_ON_READ:
            stream.compact()
        assert rows_of(stream) == model.rows
    if indexes:
        assert metadata_differences(open_table(stream.location)) == []


def check_audit(stream: JsonStream, records: int) -> None:
    newest = stream.rows.table.newest_metadata()
    found = Audit.in_commit(newest.extra_metadata) if newest else None
    assert found is not None
    assert found.offsets == found.records == records
    assert found.records == found.written + found.merged + found.rejected


# Behaviour that the model does not show


@pytest.mark.parametrize("indexes", ["", RECORD_INDEX])
@pytest.mark.parametrize("table_type", TableType)
def test_row_moves_in_one_commit_that_the_audit_accounts_for(
    table_type: TableType, indexes: str
) -> None:
    stream = new_stream(table_type, indexes)
    stream.write([row("a", "x", 1), row("b", "x", 1), row("c", "y", 1)])
    result = stream.write([row("a", "y", 2), row("c", "z", 0), Tombstone(b"b"), Tombstone(b"q")])
    assert rows_of(stream) == {"a": ("y", 2), "c": ("y", 1)}
    assert (result.moved, result.deletes, result.records) == (1, 1, 4)
    newest = stream.rows.table.newest_metadata()
    assert newest is not None
    assert {stat.partition_path for stat in newest.write_stats} == {"x", "y"}
    audited = Audit.in_commit(newest.extra_metadata)
    assert audited is not None
    assert (audited.written, audited.merged) == (2, 2), "the late c and the absent q are merged"


def test_batch_without_any_effect_still_records_its_offsets() -> None:
    stream = new_stream()
    stream.write([row("a", "x", 5)])
    result = stream.write([row("a", "y", 4), Tombstone(b"q")])
    assert (result.files, result.moved) == (0, 0)
    again = new_stream(location=stream.location)
    assert again.offset == 3
    assert rows_of(again) == {"a": ("x", 5)}


def test_delete_needs_no_valid_partition() -> None:
    stream = new_stream()
    stream.write([row("a", "x", 1), row("b", "x", 1)])
    result = stream.write([deleted("a", "no/folder", 2), deleted("b", None, 2), row("c", "u/v", 3)])
    assert rows_of(stream) == {}
    assert (result.deletes, result.rejected) == (2, 1)


def test_records_of_many_chunks_are_folded_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sinks.hudi.exchange.CHUNK_BYTES", 1_000)
    stream = new_stream(ordering=())
    regions = ["x", "y", "z"]
    for shift in range(2):
        result = stream.write(row(f"k{n % 50}", regions[(n + shift) % 3], n) for n in range(400))
    assert result.moved == 50
    assert rows_of(stream) == {f"k{n % 50}": (regions[(n + 1) % 3], n) for n in range(350, 400)}


def test_key_with_two_rows_is_refused_by_name() -> None:
    doubling = new_stream()
    doubling.partition_change = PartitionChange.ALLOW
    doubling.__post_init__()
    doubling.write([row("a", "x", 1)])
    doubling.write([row("a", "y", 2)])
    with pytest.raises(Refused, match=r"'a' has a row in each of the file groups .*unique"):
        new_stream(location=doubling.location).write([row("a", "z", 3)])


@pytest.mark.parametrize("table_type", TableType)
def test_batch_is_written_again_after_a_conflict(table_type: TableType) -> None:
    stream = new_stream(table_type, multi_writer=SHARING)
    stream.write([row("a", "x", 1)])
    shared = open_table(stream.location, coordination=Coordination(multi_writer=SHARING))
    program = RowWriter(shared, partition_change=table_index.PartitionChange.MOVE)

    class Meanwhile(InThisProcess):
        """Moves the row before the first attempt is published."""

        def run(
            self, batch: KafkaBatch, prepare: Prepare, open_write: OpenWrite
        ) -> list[PortionResult]:
            results = super().run(batch, prepare, open_write)
            if len(self.attempts) == 1:
                moved = pa.Table.from_pylist([{"id": "a", "region": "y", "ts": 2}])
                program.upsert(moved)
            return results

    stream.exchange = Meanwhile()
    stream.write([row("a", "z", 3), row("b", "z", 3)])
    assert len(stream.exchange.attempts) == 2
    assert rows_of(stream) == {"a": ("z", 3), "b": ("z", 3)}


# The audit


class LosesChanges(InThisProcess):
    """Loses the changes before the fold."""

    def run(
        self, batch: KafkaBatch, prepare: Prepare, open_write: OpenWrite
    ) -> list[PortionResult]:
        return super().run(batch, _losing(prepare), open_write)


def _losing(prepare: Prepare) -> Prepare:
    def lose(records: pa.Table, tasks: int) -> list[Portion]:
        return [one for one in prepare(records, tasks) if one.kind is not PortionKind.ROWS]

    return lose


def test_lost_changes_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = new_stream()
    stream.write([row("a", "x", 1), row("b", "x", 1)])
    with monkeypatch.context() as patched:
        sort = PlacedChanges.sort
        patched.setattr(PlacedChanges, "sort", lambda placed: sort(placed)[1:])
        with pytest.raises(AuditFailed, match=r"3 changes .* 1 moved\) are 4 to write, but 1 arr"):
            stream.write([row("a", "y", 2), row("b", "x", 2), row("c", "x", 2)])
    stream.exchange = LosesChanges()
    with pytest.raises(AuditFailed, match="1 records were read, but 0 accepted"):
        stream.write([row("c", "x", 1)])
    assert rows_of(stream) == {"a": ("x", 1), "b": ("x", 1)}
