"""Invariants of a table after any acts of any processes, in any order.

Each check raises ``AssertionError`` and names what it found. ``History`` is the sequential model:
the results that were acknowledged to callers, in the order of the acknowledgements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress, product

from checkpoints.lookup import find_progress
from lakemark.index.bucket import bucket_of
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER
from lakemark.model.action import COMMITS
from lakemark.model.file_slice import join
from lakemark.operations.metadata_table import metadata_differences
from lakemark.services.savepoint import savepoints
from lakemark.storage import Storage
from lakemark.storage.folder_storage import FolderStorage
from lakemark.storage.properties_file import read_properties
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.transaction.heartbeat import HEARTBEAT_FOLDER
from lakemark.transaction.instant_files import was_version_6
from tests.protocol.actors import OVERWRITTEN_KEYS, Acknowledged, Committed, Rows
from tests.table_services import archived_names, as_of, since
from tests.tables import Row, contents, writer


@dataclass
class History:
    """The acknowledged results on a table in which the row with the larger ordering value wins.

    No two commits write the same value for the same key, so a value identifies its commit.

    Attributes:
        certain: commits that are in the table, by requested time.
        doubtful: rows of commits whose outcome is unknown to the caller.
        doubtful_overwrites: rows of overwrites whose outcome is unknown to the caller.
        maybe_undone: requested times of commits that a rollback or restore may have undone.
        undone: requested times of commits that are undone.
        rewritten: requested times of compactions.
    """

    certain: dict[str, Committed] = field(default_factory=dict)
    doubtful: list[Rows] = field(default_factory=list)
    doubtful_overwrites: list[Rows] = field(default_factory=list)
    maybe_undone: set[str] = field(default_factory=set)
    undone: set[str] = field(default_factory=set)
    rewritten: set[str] = field(default_factory=set)

    def copy(self) -> History:
        return History(
            dict(self.certain),
            list(self.doubtful),
            list(self.doubtful_overwrites),
            set(self.maybe_undone),
            set(self.undone),
            set(self.rewritten),
        )

    def note(self, result: Acknowledged) -> None:
        """Record the result of an act that succeeded."""
        if result.commit is not None and result.commit.requested_at not in self.undone:
            self.certain[result.commit.requested_at] = result.commit
        self.rewritten |= set(result.rewritten)
        if result.restored is not None:
            self._check_restored(result)
        self.undone |= set(result.undone)
        for name in result.undone:
            self.certain.pop(name, None)

    def note_doubt(self, rows: Iterable[Row], *, overwrites: bool = False) -> None:
        """Record a commit that may be in the table or not, but never in part."""
        doubtful = self.doubtful_overwrites if overwrites else self.doubtful
        doubtful.append({row.id: (row.ts, row.v) for row in rows})

    def note_maybe_undone(self, after: str) -> None:
        """Record a restore or a rollback that failed, but may have been completed nevertheless.

        Args:
            after: requested time of a commit; all later commits may be undone.
        """
        last = self.certain[after].completed_at if after in self.certain else ""
        later = {name for name, one in self.certain.items() if one.completed_at > last}
        self.maybe_undone |= later

    def _check_restored(self, result: Acknowledged) -> None:
        """Check that a restore undoes all commits between its target and itself, and no other.

        A commit that completed between the request of the restore and its end may be undone or
        kept. It came before the restore or after it, and no caller knows which.
        """
        done = result.restored
        assert done is not None
        for name in result.undone:
            one = self.certain.get(name)
            if one is not None:
                message = f"restore {done.requested_at} undid {name}, which came after it"
                assert one.completed_at < done.completed_at, message
        target = self.certain.get(done.target)
        if target is None:
            return
        for name, one in self.certain.items():
            is_between = target.completed_at < one.completed_at < done.requested_at
            is_kept = is_between and name not in {*result.undone, *self.maybe_undone}
            assert not is_kept, f"restore {done.requested_at} to {done.target} kept {name}"


def check_rows(storage: Storage, history: History) -> None:
    """Check that every acknowledged commit is in the table, no failed one, and none in part."""
    found = contents(storage)
    if history.doubtful_overwrites or any(c.overwrites for c in history.certain.values()):
        _check_sequence(found, history)
        return
    values = set(found.items())
    certain = [c.rows for name, c in history.certain.items() if name not in history.maybe_undone]
    doubtful = [c.rows for name, c in history.certain.items() if name in history.maybe_undone]
    for rows in (*doubtful, *history.doubtful):
        if values & set(rows.items()):
            certain.append(rows)
    expected: dict[str, tuple[int, int]] = {}
    for rows in certain:
        for key, value in rows.items():
            expected[key] = max(value, expected.get(key, value))
    lost = sorted(set(expected.items()) - values)
    strange = sorted(values - set(expected.items()))
    assert not lost, f"acknowledged rows are missing: {lost}; the table has instead {strange}"
    assert not strange, f"rows that no acknowledged commit wrote: {strange}"


def _check_sequence(found: Rows, history: History) -> None:
    """Check that the rows are those after all commits, one after the other, in some order.

    An overwrite counts at any moment from its request to its completion.
    """
    certain = [one for name, one in history.certain.items() if name not in history.maybe_undone]
    doubtful = [
        *(one for name, one in history.certain.items() if name in history.maybe_undone),
        *(Committed("", "", rows) for rows in history.doubtful if rows),
        *(Committed("", "", rows, overwrites=True) for rows in history.doubtful_overwrites),
    ]
    fixed = sorted((c for c in certain if not c.overwrites), key=lambda one: one.completed_at)
    overwrites = [one for one in certain if one.overwrites]
    for chosen in product((False, True), repeat=len(doubtful)):
        floating = [*overwrites, *compress(doubtful, chosen)]
        if any(_rows_after(order) == found for order in _orders(fixed, floating)):
            return
    message = f"{found} are the rows after no order of {certain}, with or without {doubtful}"
    raise AssertionError(message)


def _orders(fixed: list[Committed], floating: list[Committed]) -> Iterator[list[Committed]]:
    """Yield the orders in which commits may have taken effect.

    Args:
        fixed: commits of rows, by completion.
        floating: the others; those without times may have taken effect at any moment.
    """
    if not floating:
        yield fixed
        return
    one, *others = floating
    for at in range(len(fixed) + 1):
        before, after = fixed[:at], fixed[at:]
        is_later = all(c.completed_at <= one.completed_at for c in before if c.completed_at)
        is_earlier = all(c.completed_at >= one.requested_at for c in after if c.completed_at)
        if (is_later or not one.completed_at) and is_earlier:
            yield from _orders([*before, one, *after], others)


def _rows_after(order: Iterable[Committed]) -> Rows:
    rows: dict[str, tuple[int, int]] = {}
    for one in order:
        if one.overwrites:
            rows = {key: row for key, row in rows.items() if key[0] not in OVERWRITTEN_KEYS}
        rows |= {key: max(row, rows.get(key, row)) for key, row in one.rows.items()}
    return rows


def check_buckets(storage: Storage) -> None:
    """Check that a bucket has one file group."""
    slices = writer(storage).table.view().latest_slices()
    counts = Counter((s.group.partition_path, bucket_of(s.group.file_id)) for s in slices)
    twice = [bucket for bucket, count in counts.items() if count > 1]
    assert not twice, f"buckets with several file groups: {twice}"


def check_known(storage: Storage, history: History) -> None:
    """Check that each commit and compaction is active or archived, unless it was undone."""
    table = writer(storage).table
    known = {i.requested_at for i in table.timeline.completed()}
    known |= {name for name, _ in archived_names(storage)}
    expected = (set(history.certain) | history.rewritten) - history.undone - history.maybe_undone
    forgotten = sorted(expected - known)
    assert not forgotten, f"neither active nor in the history: {forgotten}"


@dataclass(frozen=True, slots=True)
class Cursor:
    """The position of an incremental reader.

    Attributes:
        completed_at: the newest completion time that it has read; "" before the first.
        seen: requested times of the commits that it has read.
    """

    completed_at: str
    seen: frozenset[str]

    @classmethod
    def of(cls, storage: Storage) -> Cursor:
        """The cursor of a reader that has read all completed commits."""
        commits = writer(storage).table.timeline.completed(*COMMITS)
        newest = max((i.completed_at or "" for i in commits), default="")
        return cls(newest, frozenset(i.requested_at for i in commits))


def check_nothing_behind(storage: Storage, cursor: Cursor, history: History) -> None:
    """Check that a reader that resumes at its cursor reads all commits completed since."""
    table = writer(storage).table
    later = [i for i in table.timeline.completed(*COMMITS) if i.requested_at not in cursor.seen]
    behind = [str(i) for i in later if (i.completed_at or "") <= cursor.completed_at]
    assert not behind, f"completed behind the cursor {cursor.completed_at}: {behind}"
    if not cursor.completed_at:
        return
    found = set(since(table, cursor.completed_at))
    names = {i.requested_at for i in later}
    written = [c.rows for name, c in history.certain.items() if name in names]
    live = contents(storage)
    new = {
        (key, v) for rows in written for key, (ts, v) in rows.items() if live.get(key) == (ts, v)
    }
    assert new <= found, f"an incremental query after {cursor.completed_at} misses {new - found}"


def check_checkpoint(storage: Storage, history: History) -> None:
    """Check that the default streamer resumes at the checkpoint that was set last."""
    certain = [
        c for n, c in history.certain.items() if c.checkpoint and n not in history.maybe_undone
    ]
    if not certain or history.maybe_undone or history.doubtful:
        return  # a commit whose outcome is unknown may have set the checkpoint
    newest = max(certain, key=lambda one: one.completed_at)
    table = writer(storage).table
    progress = find_progress(table, table.timeline)
    found = progress.checkpoint if progress is not None else None
    assert found == newest.checkpoint, f"set to {newest.checkpoint}, but found {found}"


def check_savepoints(storage: Storage) -> None:
    """Check that the files of each savepoint exist, and that its state can be read.

    A savepoint of table version 6 also lists log files that are not part of its state, and an
    upgrade keeps it.
    """
    table = writer(storage).table
    is_exact = not (table.version.logs_name_their_slice or was_version_6(storage))
    for name, savepoint in savepoints(table.timeline, table.store).items():
        kept = {join(folder, one) for folder, names in savepoint.files.items() for one in names}
        gone = sorted(path for path in kept if storage.head(path) is None)
        assert not (is_exact and gone), f"savepoint {name} lacks {gone}"
        as_of(table, name)


def check_metadata(storage: Storage) -> None:
    """Check that the metadata table lists the same files as storage."""
    table = writer(storage).table
    differences = metadata_differences(table)
    assert not differences, f"the metadata table differs: {differences[:3]}"


def check_nothing_pending(storage: Storage) -> None:
    """Check that dead writers have left neither a pending instant nor a heartbeat."""
    table = writer(storage).table
    assert not table.timeline.pending(), f"pending: {table.timeline.pending()}"
    beats = [info.path for info in storage.list_folder(HEARTBEAT_FOLDER)[1]]
    assert not beats, f"heartbeats of dead writers: {beats}"


def check_nothing_pending_in_metadata(storage: Storage) -> None:
    """Check that the metadata table has no pending instant once its services have run."""
    if writer(storage).table.properties.metadata_partitions:
        folder = FolderStorage(storage, METADATA_FOLDER)
        own = TimelineStore.of_table(folder, read_properties(folder)).load()
        assert not own.pending(), f"pending in the metadata table: {own.pending()}"


def check_all(
    storage: Storage,
    history: History,
    cursors: Sequence[Cursor] = (),
    *,
    has_buckets: bool = True,
) -> None:
    """Check all that must be true when no process works on the table and nothing is pending.

    ``has_buckets``: whether the table has a bucket index.
    """
    check_seen(storage, history, cursors, has_buckets=has_buckets)
    check_metadata(storage)


def check_seen(
    storage: Storage,
    history: History,
    cursors: Sequence[Cursor] = (),
    *,
    has_buckets: bool = True,
) -> None:
    """Check all that readers see, which must be true also while an instant is pending.

    ``has_buckets`` is as for ``check_all``.
    """
    check_rows(storage, history)
    if has_buckets:
        check_buckets(storage)
    check_known(storage, history)
    for cursor in cursors:
        check_nothing_behind(storage, cursor, history)
    check_checkpoint(storage, history)
