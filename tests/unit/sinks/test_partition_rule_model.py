"""``table.partition_change`` against a model: keys, partitions, orderings, deletes, compactions.

The model keeps a base and logs for each file group. It has three rules: how changes of a key fold,
when a folded change wins over a base row, and that a compaction forgets deletes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import reduce
from uuid import uuid4

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lakemark.config.table_properties import TableType
from lakemark.execution.runner import LocalRunner
from lakemark.operations.compact import Planned
from lakemark.operations.open_table import open_table
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import StorageLocation
from sinks.hudi.partition_rule import PartitionChange
from sinks.reject_limit import RejectLimit
from tests.depth import examples
from tests.json_stream import INDEX, JsonStream

COLUMNS = {"id": "string", "ts": "bigint", "region": "string"}
KEYS, REGIONS = "ab", ("x", "y", "z")

Pair = tuple[str, str]


@dataclass(frozen=True)
class Change:
    """A record: an upsert or a delete; a delete without a time is unconditional."""

    key: str
    region: str
    ts: int | None
    is_delete: bool = False
    is_logged: bool = False

    @property
    def is_unconditional(self) -> bool:
        return self.is_delete and self.ts is None

    def record(self) -> dict[str, object]:
        fields: dict[str, object] = {"id": self.key, "region": self.region, "ts": self.ts}
        return {**fields, "_hoodie_is_deleted": True} if self.is_delete else fields


def upsert(key: str, region: str, ts: int = 0) -> Change:
    return Change(key, region, ts)


def delete(key: str, region: str, ts: int | None = None) -> Change:
    return Change(key, region, ts, is_delete=True)


@dataclass
class Group:
    """The rows of a file group by key, and its logs; those in ``planned`` are being compacted."""

    base: dict[str, Change] = field(default_factory=dict)
    planned: list[Change] = field(default_factory=list)
    logs: list[Change] = field(default_factory=list)


@dataclass
class Model:
    """The model of a table."""

    table_type: TableType
    is_ordered: bool
    groups: dict[tuple[str, int], Group] = field(default_factory=dict)

    def apply(self, batch: Iterable[Change]) -> None:
        by_group: dict[tuple[str, int], list[Change]] = defaultdict(list)
        for change in batch:
            by_group[change.region, bucket(change.key)].append(change)
        for name, changes in by_group.items():
            folded = self._folded(changes)
            if name in self.groups and self.table_type is TableType.MERGE_ON_READ:
                logged = (Change(c.key, c.region, c.ts, c.is_delete, True) for c in folded.values())
                self.groups[name].logs += logged
                continue
            base = self.groups[name].base if name in self.groups else {}
            rows = self._merged(base, folded)
            if rows or name in self.groups:
                self.groups[name] = Group(rows)

    def plan(self) -> None:
        for group in self.groups.values():
            group.planned, group.logs = group.logs, []

    def compact(self) -> None:
        for group in self.groups.values():
            group.base = self._merged(group.base, self._folded(group.planned))
            group.planned = []

    def read(self) -> set[Pair]:
        """The rows that queries find."""
        found = set()
        for (region, _), group in self.groups.items():
            rows = self._merged(group.base, self._folded([*group.planned, *group.logs]))
            found |= {(key, region) for key in rows}
        return found

    def live(self) -> set[Pair]:
        """The rows that queries find, or will find once a pending compaction completes."""
        compacted = deepcopy(self)
        compacted.compact()
        return self.read() | compacted.read()

    def _folded(self, changes: Sequence[Change]) -> dict[str, Change]:
        by_key: dict[str, list[Change]] = defaultdict(list)
        for change in changes:
            by_key[change.key].append(change)
        return {key: reduce(self._winner, several) for key, several in by_key.items()}

    def _winner(self, older: Change, newer: Change) -> Change:
        if newer.is_unconditional or not self.is_ordered:
            return newer
        if older.is_unconditional:
            return older if newer.is_delete and newer.is_logged else newer
        assert older.ts is not None and newer.ts is not None
        return newer if newer.ts >= older.ts else older

    def _merged(self, base: dict[str, Change], folded: dict[str, Change]) -> dict[str, Change]:
        rows = dict(base)
        for key, change in folded.items():
            rows[key] = self._winner(rows[key], change) if key in rows else change
        return {key: change for key, change in rows.items() if not change.is_delete}


def bucket(key: str) -> int:
    return int(INDEX.bucket_ids(pa.chunked_array([[key]]))[0])


def by_key(pairs: Iterable[Pair]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for key, region in pairs:
        found[key].append(region)
    return found


def expected(model: Model, batch: Sequence[Change]) -> tuple[set[Pair], int]:
    """Return the partition changes of a batch, and how many keys it puts into more partitions."""
    written = deepcopy(model)
    written.apply(batch)
    before, after = by_key(model.live()), by_key(written.live())
    arriving = by_key(dict.fromkeys((c.key, c.region) for c in batch if not c.is_delete))
    refused: set[Pair] = set()
    for key, regions in arriving.items():
        new = [r for r in regions if r in after[key] and r not in before[key]]
        stays = set(before[key]) & set(after[key])
        refused |= {(key, region) for region in (new if stays else new[1:])}
    count = sum(len(after[key]) > max(len(before[key]), 1) for key in after)
    return refused, count


@dataclass
class Pipeline:
    """A stream, and the model of its table."""

    stream: JsonStream
    model: Model
    planned: Planned | None = None
    refused: dict[int, str] = field(default_factory=dict)

    @classmethod
    def start(cls, table_type: TableType, is_ordered: bool, rule: PartitionChange) -> Pipeline:
        stream = JsonStream(
            StorageLocation(f"memory://{uuid4().hex}/orders"),
            columns=COLUMNS,
            table_type=table_type,
            metadata_table=False,
            ordering=("ts",) if is_ordered else (),
            partition_by=("region",),
            partition_change=rule,
            limit=RejectLimit(1.0),
        )
        return cls(stream, Model(table_type, is_ordered))

    def read(self) -> set[Pair]:
        table = open_table(self.stream.location)
        rows = (
            table.scan(columns=["id", "region"]).to_reader().read_all().to_pylist()
            if table.schema
            else []
        )
        found = Counter((str(row["id"]), str(row["region"])) for row in rows)
        assert not [pair for pair, times in found.items() if times > 1]
        return set(found)

    def refuse(self, batch: Sequence[Change]) -> None:
        refused, _ = expected(self.model, batch)
        start = self.stream.offset
        result = self.stream.write([change.record() for change in batch])
        is_refused = [not c.is_delete and (c.key, c.region) in refused for c in batch]
        self.model.apply(c for c, is_out in zip(batch, is_refused, strict=True) if not is_out)
        for offset, (change, is_out) in enumerate(zip(batch, is_refused, strict=True), start):
            if is_out:
                self.refused[offset] = f"record key '{change.key}' exists in partition '"
        assert (result.rejected, result.partition_changes) == (sum(is_refused), 0)
        assert all(len(regions) == 1 for regions in by_key(self.model.live()).values())

    def count(self, batch: Sequence[Change]) -> None:
        _, count = expected(self.model, batch)
        result = self.stream.write([change.record() for change in batch])
        self.model.apply(batch)
        assert (result.rejected, result.partition_changes) == (0, count)

    def plan(self) -> None:
        todo = self.stream.rows.compactions_to_do(CompactionPolicy(1)) if not self.planned else []
        if todo:
            (self.planned,) = todo
            self.model.plan()

    def compact(self) -> None:
        if self.planned:
            rows = self.stream.rows
            compaction = rows.begin_compaction(self.planned)
            assert compaction is not None
            rows.publish_compaction(compaction, compaction.rewrite(LocalRunner(1)))
            self.planned = None
            self.model.compact()

    def check(self) -> None:
        """Check that the rows and the dead letters are those of the model."""
        assert self.read() == self.model.read()
        reasons = self.stream.reasons()
        assert reasons.keys() == self.refused.keys()
        for offset, reason in self.refused.items():
            assert reasons[offset].startswith(reason)


TIMES = st.integers(0, 3)
CHANGES = st.one_of(
    st.builds(upsert, st.sampled_from(KEYS), st.sampled_from(REGIONS), TIMES),
    st.builds(delete, st.sampled_from(KEYS), st.sampled_from(REGIONS), TIMES | st.none()),
)
BATCHES = st.lists(CHANGES, min_size=1, max_size=5)
STEPS = st.lists(BATCHES | st.sampled_from(["plan", "compact"]), min_size=1, max_size=6)

LATE_DELETE = [[upsert("a", "x", 2)], [upsert("a", "y", 3), delete("a", "x", 1)]]
FORGOTTEN_DELETE: list[list[Change] | str] = [
    [upsert("a", "x", 0)],
    [delete("a", "x", 2)],
    "plan",
    [upsert("a", "x", 1)],
    [upsert("a", "y", 3)],
    "compact",
]


def run(pipeline: Pipeline, steps: Sequence[list[Change] | str], rule: PartitionChange) -> None:
    refuses = rule is PartitionChange.REJECT
    for step in steps:
        if isinstance(step, list):
            (pipeline.refuse if refuses else pipeline.count)(step)
        elif pipeline.model.table_type is TableType.MERGE_ON_READ:
            (pipeline.plan if step == "plan" else pipeline.compact)()
        pipeline.check()
        if refuses:
            assert all(len(regions) == 1 for regions in by_key(pipeline.read()).values())


@settings(max_examples=examples(30), deadline=None)
@given(STEPS, st.sampled_from(TableType), st.booleans())
@example(LATE_DELETE, TableType.MERGE_ON_READ, True)
@example(LATE_DELETE, TableType.COPY_ON_WRITE, True)
@example(FORGOTTEN_DELETE, TableType.MERGE_ON_READ, True)
def test_refused_moves_leave_each_key_in_one_partition(
    steps: list[list[Change] | str], table_type: TableType, is_ordered: bool
) -> None:
    rule = PartitionChange.REJECT
    run(Pipeline.start(table_type, is_ordered, rule), steps, rule)


@settings(max_examples=examples(20), deadline=None)
@given(STEPS, st.sampled_from(TableType), st.booleans())
@example(LATE_DELETE, TableType.MERGE_ON_READ, True)
@example(LATE_DELETE, TableType.COPY_ON_WRITE, True)
def test_counted_keys_are_those_in_more_partitions_than_before(
    steps: list[list[Change] | str], table_type: TableType, is_ordered: bool
) -> None:
    rule = PartitionChange.COUNT
    run(Pipeline.start(table_type, is_ordered, rule), steps, rule)
