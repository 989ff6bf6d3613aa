"""Non-blocking writers: any interleaving of commits and services leaves the rows of all commits.

The model is the list of all committed changes. The ordering values of all changes differ, so the
newest change of a key does not depend on the order of the commits. But a compaction drops a delete,
with all rows that the delete beats. Then an older change counts again if it is committed later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from hypothesis import given, seed, settings
from hypothesis import strategies as st

from lakemark.config.table_properties import TableType
from lakemark.execution.runner import LocalRunner
from lakemark.index.bucket import bucket_of
from lakemark.model.action import Action
from lakemark.model.changes import ChangeKind
from lakemark.model.commit_metadata import WriteStat
from lakemark.model.format_version import FormatVersion
from lakemark.operations.compact import Compaction, Planned
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.table_writer import TableWriter
from tests.depth import SEED, examples
from tests.protocol import actors
from tests.protocol.actors import A_HEARTBEAT_AND_MORE_S
from tests.protocol.clocked_store import ClockedStore
from tests.protocol.virtual_time import VirtualTime, on_virtual_time
from tests.tables import Row, by_bucket, changes, contents, write_files, writer

WRITERS = ("ann", "bob", "eve")

#: A key in one of two buckets of one of two partitions.
KEYS = {"a": "north", "b": "north", "c": "south", "d": "south"}

#: What happens next: a writer writes its files or publishes them, or another process acts.
STEPS = st.one_of(
    st.tuples(st.just("write"), st.sampled_from(WRITERS)),
    st.tuples(st.just("publish"), st.sampled_from(WRITERS)),
    st.tuples(st.sampled_from(("abandon", "die")), st.sampled_from(WRITERS)),
    st.tuples(
        st.sampled_from(("compact", "begin compaction", "publish compaction", "clean", "archive")),
        st.just(""),
    ),
)
KINDS = st.sampled_from((ChangeKind.UPSERT, ChangeKind.UPSERT, ChangeKind.DELETE))
CHANGES = st.dictionaries(st.sampled_from([*KEYS]), KINDS, min_size=1)


@dataclass
class Shared:
    """A table, its non-blocking writers, and the changes of all commits.

    Attributes:
        clock: the clock of all processes.
        store: the store with the table.
        draw: draws the changes of a commit.
        orderings: ordering values, no two of which are equal.
        committed: the changes of all completed commits.
        pending: the writer, the files and the changes of each commit that has not completed.
        compaction: a compaction that another process has begun, with its files.
        planned: for each compaction, the changes that its plan drops.
    """

    clock: VirtualTime
    store: ClockedStore
    draw: Callable[[], Mapping[str, ChangeKind]]
    orderings: list[int]
    committed: list[Row] = field(default_factory=list)
    pending: dict[str, tuple[TableWriter, list[WriteStat], list[Row]]] = field(default_factory=dict)
    compaction: tuple[TableWriter, Compaction, list[WriteStat]] | None = None
    planned: dict[str, list[Row]] = field(default_factory=dict)

    def opened(self) -> TableWriter:
        return actors.open_writer(self.store, self.clock, has_metadata=True, non_blocking=True)

    def do(self, step: str, name: str) -> None:
        """Take a step, unless it is impossible now."""
        if step == "write":
            self.write(name)
        elif name and name in self.pending:
            self.end(step, name)
        elif step == "begin compaction":
            self.begin_compaction()
        elif step == "publish compaction":
            self.publish_compaction()
        elif step == "compact":
            self.compact()
        elif not name:
            _SERVICES[step](self.opened())

    def write(self, name: str) -> None:
        if name not in self.pending:
            to = self.opened()
            to.recover()
            rows = [self.row(key, kind) for key, kind in self.draw().items()]
            self.pending[name] = (to, write_files(to, rows), rows)

    def row(self, key: str, kind: ChangeKind) -> Row:
        ts = self.orderings.pop()
        return Row(key, ts, ts, KEYS[key], kind)

    def end(self, step: str, name: str) -> None:
        to, written, rows = self.pending.pop(name)
        if step == "publish":
            to.commit(written, {})  # no other commit makes it fail
            self.committed += rows
        elif step == "abandon":
            to.abandon()

    def compact(self) -> None:
        to = self.opened()
        for planned in self.plans(to):
            for instant, _ in to.run_compaction(planned, LocalRunner(1)):
                self.forget(instant.requested_at)

    def begin_compaction(self) -> None:
        to = self.opened()
        for planned in () if self.compaction else self.plans(to):
            begun = to.begin_compaction(planned)
            if begun is not None:
                self.compaction = (to, begun, begun.rewrite(LocalRunner(1)))
                return

    def publish_compaction(self) -> None:
        if self.compaction is not None:
            to, begun, files = self.compaction
            instant, _ = to.publish_compaction(begun, files)
            self.compaction = None
            self.forget(instant.requested_at)

    def plans(self, to: TableWriter) -> list[Planned]:
        """Return the pending compactions, or a new one, and note the changes that a new one drops.

        If the newest of the changes of a key is a delete, all of them are dropped.
        """
        found = to.compactions_to_do(actors.COMPACTION)
        for instant, plan in found:
            if instant.requested_at not in self.planned:
                groups = {
                    (one.group.partition_path, bucket_of(one.group.file_id))
                    for one in plan.operations
                }
                dropped = [self.dropped(key) for key in KEYS if group_of(key) in groups]
                self.planned[instant.requested_at] = [row for rows in dropped for row in rows]
        return found

    def dropped(self, key: str) -> list[Row]:
        changes = self.changes_of(key)
        return changes if changes and changes[-1].kind is ChangeKind.DELETE else []

    def forget(self, compaction: str) -> None:
        """Forget the changes that a completed compaction has dropped."""
        dropped = self.planned.pop(compaction)
        self.committed = [row for row in self.committed if row not in dropped]

    def changes_of(self, key: str) -> list[Row]:
        """Return the changes of a key, the newest last."""
        return sorted((row for row in self.committed if row.id == key), key=lambda row: row.ts)

    def check(self) -> None:
        """Check the rows, and that each bucket has one file group."""
        if not writer(self.store).table.timeline.completed(Action.DELTA_COMMIT):
            return  # the table has no columns
        newest = (changes[-1] for key in KEYS if (changes := self.changes_of(key)))
        rows = {row.id: (row.ts, row.v) for row in newest if row.kind is ChangeKind.UPSERT}
        assert contents(self.store) == rows
        slices = writer(self.store).table.view().latest_slices()
        groups = Counter((s.group.partition_path, bucket_of(s.group.file_id)) for s in slices)
        assert max(groups.values(), default=1) == 1, groups

    def finish(self) -> None:
        """Publish what is pending, let the heartbeats of the dead expire, and check the table."""
        for name in [*self.pending]:
            self.end("publish", name)
        self.publish_compaction()
        self.check()
        self.clock.sleep(A_HEARTBEAT_AND_MORE_S)
        self.opened().recover()
        self.compact()
        self.check()
        table = writer(self.store).table
        assert not table.timeline.pending()
        assert metadata_differences(table) == []


def group_of(key: str) -> tuple[str, int | None]:
    """Return the partition and the bucket of a key."""
    ((bucket, _),) = by_bucket(changes([Row(key, region=KEYS[key])]))
    return bucket.partition_path, bucket.number


_SERVICES: Mapping[str, Callable[[TableWriter], object]] = {
    "clean": actors.clean_up,
    "archive": actors.archive_instants,
}


@seed(SEED)
@settings(max_examples=examples(25), deadline=None)
@given(
    st.lists(STEPS, min_size=4, max_size=20),
    st.lists(CHANGES, min_size=20, max_size=20),
    st.permutations(range(100)),
    st.sampled_from((FormatVersion.V8, FormatVersion.V9)),
)
def test_rows_are_those_of_all_commits_in_any_order(
    steps: Iterable[tuple[str, str]],
    drawn: list[Mapping[str, ChangeKind]],
    orderings: list[int],
    version: FormatVersion,
) -> None:
    with on_virtual_time() as clock:
        store = ClockedStore(clock)
        actors.create_table(store, clock, TableType.MERGE_ON_READ, version, has_metadata=True)
        shared = Shared(clock, store, drawn.pop, list(orderings))
        for step, name in steps:
            shared.do(step, name)
            shared.check()
        shared.finish()
