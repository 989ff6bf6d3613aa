"""What holds for a table after any acts of any processes, in any order.

Each check raises ``AssertionError`` with what was found. ``History`` is the sequential model: what
callers were told, in the order in which they were told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

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
from tests.protocol.actors import Acknowledged, Committed, Rows
from tests.table_services import archived_names, as_of, since
from tests.tables import Row, contents, writer


@dataclass
class History:
    """What callers were told of a table in which the row with the larger ordering value stays.

    Values tell commits apart: no two hold one value of one key.

    Attributes:
        certain: commits that are in the table, by requested time.
        doubtful: rows of commits whose outcome the caller was not told.
        maybe_undone: requested times of commits that somebody may have taken back.
        undone: those that were.
        rewritten: requested times of compactions.
    """

    certain: dict[str, Committed] = field(default_factory=dict)
    doubtful: list[Rows] = field(default_factory=list)
    maybe_undone: set[str] = field(default_factory=set)
    undone: set[str] = field(default_factory=set)
    rewritten: set[str] = field(default_factory=set)

    def copy(self) -> History:
        return History(
            dict(self.certain),
            list(self.doubtful),
            set(self.maybe_undone),
            set(self.undone),
            set(self.rewritten),
        )

    def note(self, told: Acknowledged) -> None:
        """An act that ended well."""
        if told.commit is not None and told.commit.requested_at not in self.undone:
            self.certain[told.commit.requested_at] = told.commit
        self.rewritten |= set(told.rewritten)
        if told.restored is not None:
            self._check_restored(told)
        self.undone |= set(told.undone)
        for name in told.undone:
            self.certain.pop(name, None)

    def note_doubt(self, rows: Iterable[Row]) -> None:
        """A commit may be in the table, or not; if it is, then whole."""
        self.doubtful.append({row.id: (row.ts, row.v) for row in rows})

    def note_maybe_undone(self, after: str) -> None:
        """A restore to a commit, or a rollback, failed, and may have come to its end all the same.

        Args:
            after: requested time of the commit after which commits may be gone.
        """
        last = self.certain[after].completed_at if after in self.certain else ""
        later = {name for name, one in self.certain.items() if one.completed_at > last}
        self.maybe_undone |= later

    def _check_restored(self, told: Acknowledged) -> None:
        """It takes back all that came between its target and itself, and nothing else.

        What completed between its request and its end may be taken back or stay: it came before
        the restore or after it, and nobody was told which.
        """
        done = told.restored
        assert done is not None
        for name in told.undone:
            one = self.certain.get(name)
            if one is not None:
                message = f"restore {done.requested_at} took {name} back, which came after it"
                assert one.completed_at < done.completed_at, message
        target = self.certain.get(done.target)
        if target is None:
            return
        for name, one in self.certain.items():
            is_between = target.completed_at < one.completed_at < done.requested_at
            is_left = is_between and name not in {*told.undone, *self.maybe_undone}
            assert not is_left, f"restore {done.requested_at} to {done.target} left {name}"


def check_rows(storage: Storage, history: History) -> None:
    """Each commit that was acknowledged is there, none that failed, and no part of one."""
    found = contents(storage)
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
    assert not lost, f"acknowledged rows are not there: {lost}; instead {strange}"
    assert not strange, f"rows that nobody was told are there: {strange}"


def check_buckets(storage: Storage) -> None:
    """A bucket has one file group."""
    slices = writer(storage).table.view().latest_slices()
    counts = Counter((s.group.partition_path, bucket_of(s.group.file_id)) for s in slices)
    twice = [bucket for bucket, count in counts.items() if count > 1]
    assert not twice, f"buckets with several file groups: {twice}"


def check_known(storage: Storage, history: History) -> None:
    """Each commit and compaction is active or in the history, unless it was taken back."""
    table = writer(storage).table
    known = {i.requested_at for i in table.timeline.completed()}
    known |= {name for name, _ in archived_names(storage)}
    told = (set(history.certain) | history.rewritten) - history.undone - history.maybe_undone
    forgotten = sorted(told - known)
    assert not forgotten, f"neither active nor in the history: {forgotten}"


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far an incremental reader has come.

    Attributes:
        completed_at: the newest completion that it saw; "" before the first.
        seen: requested times of the commits that it saw.
    """

    completed_at: str
    seen: frozenset[str]

    @classmethod
    def of(cls, storage: Storage) -> Cursor:
        """A reader that has read all there is."""
        commits = writer(storage).table.timeline.completed(*COMMITS)
        newest = max((i.completed_at or "" for i in commits), default="")
        return cls(newest, frozenset(i.requested_at for i in commits))


def check_nothing_behind(storage: Storage, cursor: Cursor, history: History) -> None:
    """What completed since a reader came there, it meets when it goes on."""
    table = writer(storage).table
    later = [i for i in table.timeline.completed(*COMMITS) if i.requested_at not in cursor.seen]
    behind = [str(i) for i in later if (i.completed_at or "") <= cursor.completed_at]
    assert not behind, f"completed behind the cursor {cursor.completed_at}: {behind}"
    if not cursor.completed_at:
        return
    met = set(since(table, cursor.completed_at))
    names = {i.requested_at for i in later}
    told = [c.rows for name, c in history.certain.items() if name in names]
    live = contents(storage)
    new = {(key, v) for rows in told for key, (ts, v) in rows.items() if live[key] == (ts, v)}
    assert new <= met, f"an incremental query after {cursor.completed_at} misses {new - met}"


def check_checkpoint(storage: Storage, history: History) -> None:
    """The default streamer goes on where it was last set to."""
    certain = [
        c for n, c in history.certain.items() if c.checkpoint and n not in history.maybe_undone
    ]
    if not certain or history.maybe_undone or history.doubtful:
        return  # one of those may have set it
    newest = max(certain, key=lambda one: one.completed_at)
    table = writer(storage).table
    progress = find_progress(table, table.timeline)
    found = progress.checkpoint if progress is not None else None
    assert found == newest.checkpoint, f"set to {newest.checkpoint}, and found is {found}"


def check_savepoints(storage: Storage) -> None:
    """What a savepoint keeps is there, and its state can be read.

    In table version 6 it also lists logs that are no part of its state.
    """
    table = writer(storage).table
    is_exact = not table.version.logs_name_their_slice
    for name, savepoint in savepoints(table.timeline, table.store).items():
        kept = {join(folder, one) for folder, names in savepoint.files.items() for one in names}
        gone = sorted(path for path in kept if storage.head(path) is None)
        assert not (is_exact and gone), f"savepoint {name} lacks {gone}"
        as_of(table, name)


def check_metadata(storage: Storage) -> None:
    """The metadata table says what a listing says."""
    table = writer(storage).table
    differences = metadata_differences(table)
    assert not differences, f"the metadata table differs: {differences[:3]}"


def check_nothing_pending(storage: Storage) -> None:
    """Of the dead nothing is left: no instant and no heartbeat."""
    table = writer(storage).table
    assert not table.timeline.pending(), f"pending: {table.timeline.pending()}"
    beats = [info.path for info in storage.list_folder(HEARTBEAT_FOLDER)[1]]
    assert not beats, f"heartbeats of nobody: {beats}"


def check_nothing_pending_in_metadata(storage: Storage) -> None:
    """Nor is an instant left in the metadata table, once its services have run."""
    if writer(storage).table.properties.metadata_partitions:
        folder = FolderStorage(storage, METADATA_FOLDER)
        own = TimelineStore.of_table(folder, read_properties(folder)).load()
        assert not own.pending(), f"pending in the metadata table: {own.pending()}"


def check_all(storage: Storage, history: History, cursors: Sequence[Cursor] = ()) -> None:
    """What holds at any moment at which nobody is at work, and nothing is pending."""
    check_seen(storage, history, cursors)
    check_metadata(storage)


def check_seen(storage: Storage, history: History, cursors: Sequence[Cursor] = ()) -> None:
    """What readers see, also while something is pending."""
    check_rows(storage, history)
    check_buckets(storage)
    check_known(storage, history)
    for cursor in cursors:
        check_nothing_behind(storage, cursor, history)
    check_checkpoint(storage, history)
