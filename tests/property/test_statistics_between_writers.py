"""A writer that keeps statistics between its commits notices whatever another writer does.

Whatever the two did before, the statistics of files and partitions agree with the data files after
each commit. Statistics that lacked a file would make queries skip its rows.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias
from uuid import uuid4

import pyarrow as pa
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import lakemark
from lakemark.errors import Refused, WriteConflict
from lakemark.model.action import COMMITS
from lakemark.model.row_order import RowOrder
from lakemark.operations.cluster import schedule_clustering
from lakemark.operations.compact import request_compaction
from lakemark.operations.compact_logs import schedule_log_compaction
from lakemark.services.clustering_plan import ClusteringPolicy
from lakemark.transaction.conflicts import ClusteringPlanned
from tests.depth import examples
from tests.tables import SCHEMA

REGIONS = ("north", "south")

#: The key, partition and value of each row.
Given: TypeAlias = list[tuple[str, str, int]]

KEYS = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.sampled_from(REGIONS), st.integers(-9, 9)),
    min_size=1,
    max_size=4,
    unique_by=lambda key: key[0],
)
#: Acts of either writer; writes are more frequent.
ACTS: st.SearchStrategy[tuple[str, Given]] = st.one_of(
    st.tuples(st.just("upsert"), KEYS),
    st.tuples(st.just("upsert"), KEYS),
    st.tuples(st.just("delete"), KEYS),
    st.tuples(st.just("overwrite"), KEYS),
    st.tuples(
        st.sampled_from(
            "delete_partition compact compact_logs cluster clean archive rebuild plan_compaction "
            "plan_log_compaction plan_clustering roll_back restore".split()
        ),
        st.just([]),
    ),
)
STEPS = st.lists(
    st.tuples(st.sampled_from(["keeper", "keeper", "other"]), ACTS), min_size=4, max_size=10
)


class Process:
    """A process that has opened a table, and keeps its state from act to act."""

    def __init__(self, table: lakemark.Table, index: str) -> None:
        self.table, self._is_clusterable = table, index == "lookup"

    def upsert(self, given_: Given) -> None:
        self.table.upsert(_rows(given_))

    def delete(self, given_: Given) -> None:
        self.table.delete(pa.array([key for key, _, _ in given_]))

    def overwrite(self, given_: Given) -> None:
        self.table.insert_overwrite(_rows(given_))

    def delete_partition(self, _: Given) -> None:
        self.table.delete_partitions("n*")

    def compact(self, _: Given) -> None:
        if self._is_merge_on_read:
            self.table.compact()

    def compact_logs(self, _: Given) -> None:
        if self._is_merge_on_read:
            self.table.compact_logs(min_logs=2)

    def cluster(self, _: Given) -> None:
        if self._is_clusterable:
            self.table.cluster("v")

    def clean(self, _: Given) -> None:
        self.table.clean(retain_commits=1)

    def archive(self, _: Given) -> None:
        self.table.archive(min_commits=2, max_commits=3, retain_commits=1)

    def rebuild(self, _: Given) -> None:
        self.table.rebuild_metadata_table()

    def plan_compaction(self, _: Given) -> None:
        if self._is_merge_on_read:
            self.table.refresh()
            request_compaction(self.table._table)

    def plan_log_compaction(self, _: Given) -> None:
        if self._is_merge_on_read:
            self.table.refresh()
            schedule_log_compaction(self.table._table, 2)

    def plan_clustering(self, _: Given) -> None:
        if self._is_clusterable:
            self.table.refresh()
            schedule_clustering(self.table._table, ClusteringPolicy(order=RowOrder(("v",))))

    def roll_back(self, _: Given) -> None:
        """Roll the newest commit back."""
        self.table.refresh()
        for instant in self.table.timeline.completed(*COMMITS)[1:][-1:]:
            self.table.rollback(instant.requested_at)

    def restore(self, _: Given) -> None:
        """Undo the last two commits."""
        self.table.refresh()
        for instant in self.table.timeline.completed(*COMMITS)[-3:-2]:
            self.table.restore(instant.requested_at)

    @property
    def _is_merge_on_read(self) -> bool:
        return self.table.properties.is_merge_on_read


def _rows(given_: Given) -> pa.Table:
    rows = [{"id": key, "region": region, "ts": abs(v), "v": v} for key, region, v in given_]
    return pa.Table.from_pylist(rows, SCHEMA)


@settings(max_examples=examples(4), deadline=None, phases=[Phase.explicit, Phase.generate])
@given(
    STEPS,
    st.sampled_from(["merge_on_read", "copy_on_write"]),
    st.sampled_from([6, 9]),
    # Buckets divide each partition into several file groups.
    st.sampled_from(["bucket", "bucket", "lookup"]),
)
def test_statistics_agree_with_the_files_whatever_another_writer_does(
    steps: list[tuple[str, tuple[str, Given]]], table_type: str, version: int, index: str
) -> None:
    keeper = lakemark.create(
        f"memory://{uuid4().hex}/orders",
        schema=SCHEMA,
        record_key="id",
        partition_by="region",
        ordering="ts",
        table_type=table_type,
        version=version,
        index=index,
    )
    other = lakemark.open(keeper.location)
    processes = {"keeper": Process(keeper, index), "other": Process(other, index)}
    processes["keeper"].upsert([("a", "north", 1), ("b", "south", 1), ("c", "north", -1)])
    for name, (step, argument) in steps:
        act: Callable[[Given], None] = getattr(processes[name], step)
        with suppress(ClusteringPlanned, Refused, WriteConflict):  # a plan of the other prevents it
            act(argument)
        assert lakemark.open(keeper.location).metadata_differences() == []
