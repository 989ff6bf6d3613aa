"""After any history with overwrites and deletions of partitions, queries find a model's rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias
from uuid import uuid4

import pyarrow as pa
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import lakemark
from lakemark.errors import InvalidConfig
from lakemark.model.action import COMMITS
from lakemark.read.queries import Incremental, Snapshot
from tests.depth import examples

SCHEMA = pa.schema(
    [("id", pa.string()), ("region", pa.string()), ("ts", pa.int64()), ("v", pa.int64())]
)
REGIONS = ("north", "south", "west")

#: The value of each key of each partition, and the commit that wrote it.
State: TypeAlias = dict[tuple[str, str], tuple[int, str]]
Keys: TypeAlias = list[tuple[str, str]]

KEYS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from(REGIONS)), min_size=1, max_size=4
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("upsert"), KEYS),
        st.tuples(st.just("upsert"), KEYS),
        st.tuples(st.just("overwrite"), KEYS),
        st.tuples(st.just("overwrite_table"), KEYS | st.just([])),
        st.tuples(st.just("delete"), st.sampled_from([*REGIONS, "*th", "*"])),
        st.tuples(st.sampled_from(["compact", "clean", "archive", "undo", "reopen"]), st.none()),
    ),
    min_size=1,
    max_size=9,
)


@dataclass
class History:
    """A table, its rows, and its rows as of each commit that may still be queried."""

    table: lakemark.Table
    rows: State = field(default_factory=dict)
    past: dict[str, State] = field(default_factory=dict)
    value: int = 0

    def upsert(self, keys: Keys) -> None:
        self._wrote(self.table.upsert(self._given(keys)).instant, keys)

    def overwrite(self, keys: Keys) -> None:
        instant = self.table.insert_overwrite(self._given(keys)).instant
        self._drop({region for _, region in keys})
        self._wrote(instant, keys)

    def overwrite_table(self, keys: Keys) -> None:
        instant = self.table.insert_overwrite_table(self._given(keys)).instant
        self._drop(set(REGIONS))
        self._wrote(instant, keys)

    def delete(self, pattern: str) -> None:
        if "*" not in pattern and not any(region == pattern for _, region in self.rows):
            return  # the partition may not exist yet
        deleted = self.table.delete_partitions(pattern)
        regions = {one.path for one in deleted.partitions}
        assert regions == {
            region
            for _, region in self.rows
            if pattern in (region, "*") or (pattern == "*th" and region.endswith("th"))
        }
        self._drop(regions)
        self._wrote(deleted.instant, [])

    def compact(self, _: None) -> None:
        if self.table.properties.is_merge_on_read:
            for instant in self.table.compact().instants:
                self.past[instant] = dict(self.rows)

    def clean(self, _: None) -> None:
        self.table.clean(retain_commits=2)

    def archive(self, _: None) -> None:
        self.table.archive(min_commits=3, max_commits=4, retain_commits=2)

    def undo(self, _: None) -> None:
        """Roll a new commit back, which replaces all rows."""
        instant = self.table.insert_overwrite_table(self._given([("z", "north")])).instant
        assert instant is not None
        self.table.rollback(instant)

    def reopen(self, _: None) -> None:
        self.table = lakemark.open(self.table.location)

    def check(self) -> None:
        table = lakemark.open(self.table.location)
        assert _read(table, Snapshot()) == self.rows
        assert table.metadata_differences() == []
        active = {i.requested_at: i for i in table.timeline.completed(*COMMITS)}
        for requested_at, state in list(self.past.items())[-4:]:
            try:
                assert _read(table, Snapshot(as_of=requested_at)) == state
            except InvalidConfig:
                pass  # the files were cleaned, or the commit was archived
            instant = active.get(requested_at)
            if instant is not None:
                begin = requested_at if table.version == 6 else instant.completed_at
                assert begin is not None
                newer = {k: row for k, row in self.rows.items() if row[1] > requested_at}
                assert _read(table, Incremental(begin)) == newer

    def _given(self, keys: Keys) -> pa.Table:
        self.value += 1
        listed = [
            {"id": key, "region": region, "ts": self.value, "v": self.value} for key, region in keys
        ]
        return pa.Table.from_pylist(listed, schema=SCHEMA)

    def _drop(self, regions: set[str]) -> None:
        self.rows = {key: row for key, row in self.rows.items() if key[1] not in regions}

    def _wrote(self, instant: str | None, keys: Keys) -> None:
        if instant is not None:
            self.rows |= dict.fromkeys(keys, (self.value, instant))
            self.past[instant] = dict(self.rows)


def _read(table: lakemark.Table, query: Snapshot | Incremental) -> State:
    columns = ["id", "region", "v", "_hoodie_commit_time"]
    found = table.scan(query, columns).to_table().to_pylist()
    rows = {(row["id"], row["region"]): (row["v"], row["_hoodie_commit_time"]) for row in found}
    assert len(rows) == len(found), "a key is there twice"
    return rows


@settings(max_examples=examples(12), deadline=None, phases=[Phase.explicit, Phase.generate])
@given(
    STEPS,
    st.sampled_from(["merge_on_read", "copy_on_write"]),
    st.sampled_from([6, 8, 9]),
    st.sampled_from(["bucket", "lookup"]),
)
def test_queries_find_the_rows_of_the_model(
    steps: list[tuple[str, object]], table_type: str, version: int, index: str
) -> None:
    table = lakemark.create(
        f"memory://{uuid4().hex}/orders",
        schema=SCHEMA,
        record_key="id",
        partition_by="region",
        ordering="ts",
        table_type=table_type,
        version=version,
        index=index,
    )
    history = History(table)
    history.upsert([("a", "north"), ("b", "south")])
    for step, argument in steps:
        act: Callable[[object], None] = getattr(history, step)
        act(argument)
        history.check()
