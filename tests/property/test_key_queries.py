"""After any history, a query that skips file groups by key returns the rows of a whole scan.

The whole scan reads all file groups, and its rows are filtered afterwards. The queries are those of
a table that was just opened, and of one that was opened before the last steps.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import lakemark
from lakemark import Incremental, ReadOptimized, Snapshot, SnapshotChanged
from lakemark.config.parquet_settings import PARQUET_DEFAULTS, ParquetSettings
from lakemark.errors import InvalidConfig, InvalidRecords, Refused, Unsupported
from lakemark.model.action import COMMITS
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.read.queries import Query
from lakemark.read.where import parse_where
from tests.depth import examples

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("n", pa.int32()),
        ("d", pa.decimal128(12, 2)),
        ("at", pa.timestamp("us")),
        ("day", pa.string()),
        ("ts", pa.int64()),
        ("v", pa.int64()),
    ]
)
KEY_FIELDS = [["id"], ["n"], ["id", "n"], ["d"], ["n", "d", "id"], ["at"]]
TEXTS = ["a", "b", "c", "d", "ä,b", "id:a", "it's", "\U0001f600", "", "001", "zz"]
DAYS = ["1", "2"]
#: So small that an insert adds file groups.
SIZING = ParquetSettings(max_file_bytes=3 * PARQUET_DEFAULTS.record_bytes, small_file_bytes=0)

ROW = st.tuples(
    st.none() | st.sampled_from(TEXTS),
    st.none() | st.integers(-1, 9),
    st.none() | st.integers(-1, 9).map(lambda n: Decimal(n) / 2),
    st.integers(0, 9),
    st.sampled_from(DAYS),
    st.integers(0, 3),
)
ROWS = st.lists(ROW, min_size=1, max_size=6)
FIRST_ROWS = st.lists(ROW, min_size=16, max_size=30)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["upsert", "upsert", "insert", "delete"]), ROWS),
        st.tuples(st.sampled_from(["bulk_insert", "overwrite", "undo"]), ROWS),
        st.tuples(st.just("create_index"), st.sampled_from(["record_index", "bloom_filters"])),
        st.tuples(st.just("delete_partition"), st.sampled_from(DAYS)),
        st.tuples(st.sampled_from(["compact", "compact", "clean", "resize", "keep"]), st.none()),
    ),
    min_size=2,
    max_size=8,
)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


LITERALS = {
    "id": st.sampled_from([*TEXTS, "missing"]).map(quoted),
    "n": st.integers(-1, 10).map(str),
    "d": st.sampled_from(["-0.5", "0", "0.5", "1", "1.00", "2.5", "3", "7"]),
    "at": st.sampled_from(
        ["'1970-01-01'", "'1970-01-01T00:00:00.000001'", "'1970-01-01T00:00:00.000005'"]
    ),
}


@st.composite
def comparisons(draw: st.DrawFn, column: str) -> str:
    literals = draw(st.lists(LITERALS[column], min_size=1, max_size=3))
    forms = [f"{column} = {literals[0]}", f"{column} in ({', '.join(literals)})"]
    rarer = [f"{column} is null", f"not {column} = {literals[0]}", f"{column} <= {literals[0]}"]
    return draw(st.sampled_from([*forms, *forms, *rarer]))


@st.composite
def conditions(draw: st.DrawFn, key_fields: list[str]) -> str:
    """Draw a condition: usually one that demands keys, sometimes joined with another one."""
    on_key = " and ".join(draw(comparisons(name)) for name in key_fields)
    other = draw(comparisons(draw(st.sampled_from(list(LITERALS)))) | st.just("v > 1"))
    return draw(st.sampled_from([on_key, f"{on_key} and {other}", f"{on_key} or {other}"]))


class _History:
    """A table, and a handle that was opened at some step and is never refreshed."""

    def __init__(self, key_fields: list[str], index: str, **options: Any) -> None:
        self.path = f"memory://{uuid4().hex}/keys"
        self._index, self._key_fields, self._time = index, key_fields, 0
        lakemark.create(
            self.path,
            schema=SCHEMA,
            record_key=key_fields,
            partition_by="day",
            ordering="ts",
            index=index,
            only_writer=True,
            **options,
        )
        self.keep(None)

    def take(self, step: str, argument: Any) -> None:
        # The table may not have the index, the rows may have no key, and so on.
        with suppress(InvalidConfig, InvalidRecords, Refused, Unsupported):
            _DO[step](self, argument)

    def keep(self, _: None) -> None:
        self.old = self._opened()
        self.old.scan().to_table()

    def upsert(self, rows: list[Any]) -> None:
        self._table.upsert(self._given(rows))

    def insert(self, rows: list[Any]) -> None:
        policy = "drop" if self._has_record_index else "allow"
        self._table.insert(self._given(rows), duplicates=policy)

    def bulk_insert(self, rows: list[Any]) -> None:
        self._table.bulk_insert(self._given(rows))

    def delete(self, rows: list[Any]) -> None:
        self._table.delete(self._given(rows).select(self._key_fields))

    def overwrite(self, rows: list[Any]) -> None:
        self._table.insert_overwrite(self._given(rows))

    def delete_partition(self, day: str) -> None:
        self._table.delete_partitions(day)

    def undo(self, rows: list[Any]) -> None:
        table = self._table
        written = table.upsert(self._given(rows)).instant
        if written is not None:
            table.rollback(written)

    def create_index(self, name: str) -> None:
        if self._opened().properties.metadata_partitions:
            self._table.create_index(name)

    def compact(self, _: None) -> None:
        self._table.compact()

    def clean(self, _: None) -> None:
        self._table.clean(retain_commits=1)

    def resize(self, _: None) -> None:
        if self._index == "consistent_hashing":
            self._table.resize_buckets(split_above_bytes=2, merge_below_bytes=1)

    @property
    def _has_record_index(self) -> bool:
        return any(one.name == "record_index" for one in self._opened().indexes)

    def _opened(self) -> lakemark.Table:
        return lakemark.open(self.path, only_writer=True)

    @property
    def _table(self) -> lakemark.Table:
        move = "move" if self._has_record_index else None
        return lakemark.open(self.path, only_writer=True, base_files=SIZING, partition_change=move)

    def _given(self, rows: list[Any]) -> pa.Table:
        """Return the rows that have a key; some of them lose to older ones."""
        self._time += 2
        rows = [row for row in rows if self._has_key(dict(zip(SCHEMA.names, row, strict=False)))]
        listed = [
            dict(zip(SCHEMA.names, (*row[:-1], self._time - row[-1], row[-1]), strict=True))
            for row in rows
        ]
        return pa.Table.from_pylist(listed, schema=SCHEMA)

    def _has_key(self, row: dict[str, object]) -> bool:
        return any(row[name] not in (None, "") for name in self._key_fields)

    def check(self, condition: str, record_keys: list[str] | None) -> None:
        table = self._opened()
        past = [i.requested_at for i in table.timeline.completed(*COMMITS)][-3:]
        queries: list[Query] = [Snapshot(), ReadOptimized(), Incremental("earliest")]
        queries += [Snapshot(as_of=time) for time in past]
        queries += [Incremental("earliest", past[0]), ReadOptimized(as_of=past[0])]
        for query in queries:
            with suppress(InvalidConfig):  # the files of that time were cleaned
                check_query(table, query, condition, record_keys)
        known = self.old.timeline.instants
        with suppress(SnapshotChanged):
            found = rows_of(self.old.scan(where=condition).to_table())
            every = self.old.scan().to_table()
            if self.old.timeline.instants == known:
                assert found == rows_of(every.filter(parse_where(condition, every.schema)))


def check_query(
    table: lakemark.Table, query: Query, condition: str, record_keys: list[str] | None
) -> None:
    every = table.scan(query).to_table()
    wanted = every.filter(parse_where(condition, every.schema))
    scan = table.scan(query, where=condition)
    assert rows_of(scan.to_table()) == rows_of(wanted)
    assert set(table.explain(query, where=condition).read) == set(scan.slices)
    if record_keys is not None:
        found = table.scan(query, where=condition, record_keys=record_keys).to_table()
        assert rows_of(found) == rows_of(
            wanted.filter(
                pc.is_in(wanted[RECORD_KEY], value_set=pa.array(record_keys, pa.string()))
            )
        )


def rows_of(table: pa.Table) -> list[str]:
    return sorted(map(str, table.to_pylist()))


_DO: dict[str, Callable[..., None]] = {
    name: getattr(_History, name)
    for name in (
        *("upsert", "insert", "bulk_insert", "delete", "overwrite", "delete_partition", "undo"),
        *("create_index", "compact", "clean", "resize", "keep"),
    )
}


@settings(max_examples=examples(15), deadline=None, phases=[Phase.explicit, Phase.generate])
@given(
    st.data(),
    st.sampled_from(KEY_FIELDS),
    st.sampled_from(["lookup", "lookup", "lookup", "bucket", "consistent_hashing"]),
    st.sampled_from(["merge_on_read", "copy_on_write"]),
    st.sampled_from([6, 8, 9]),
    st.booleans(),
)
def test_query_by_key_returns_the_rows_of_a_whole_scan(
    data: st.DataObject,
    key_fields: list[str],
    index: str,
    table_type: str,
    version: int,
    metadata_table: bool,
) -> None:
    if index == "consistent_hashing":
        table_type = "merge_on_read"
    options = {"table_type": table_type, "version": version, "metadata_table": metadata_table}
    history = _History(key_fields, index, **options)
    history.take("bulk_insert", data.draw(FIRST_ROWS))
    if data.draw(st.booleans()):
        history.take("create_index", "record_index")
    for step, argument in data.draw(STEPS):
        history.take(step, argument)
        keys = st.none() | st.lists(st.sampled_from(["a", "b", "id:a,n:1", "1"]), max_size=2)
        history.check(data.draw(conditions(key_fields)), data.draw(keys))
