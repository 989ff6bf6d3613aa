"""Several writers of one table and checks of its rows. Each is a thread that dies now and then."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from lakemark.codec import avro_container
from lakemark.config.table_properties import PROPERTIES_PATH, MergeMode, TableType
from lakemark.config.table_spec import TableSpec
from lakemark.errors import OutcomeUnknown, Retriable
from lakemark.execution.runner import LocalRunner
from lakemark.model.action import COMMITS, Action, State
from lakemark.model.file_slice import FileGroupId
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.operations.archive import archive
from lakemark.operations.clean import clean
from lakemark.operations.metadata_table import compact_and_maintain_metadata_table
from lakemark.operations.table_writer import TableWriter
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.cleaning_plan import CleaningPolicy
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.services.metadata_table_services import MetadataPolicies
from lakemark.storage import Storage
from lakemark.timeline.locks.open_lock import LockProviderName, open_lock
from lakemark.timeline.locks.table_lock import SystemClock
from lakemark.transaction.heartbeat import HEARTBEAT_FOLDER, HeartbeatPolicy
from lakemark.transaction.multi_writer import MultiWriter
from tests.storages import FaultyStorage, SimulatedCrash
from tests.storages.faulty_storage import When
from tests.tables import Row, contents, data_files, write_files, writer

BATCH = "test.batch"
REGIONS = ("east", "north", "south", "west", "up", "down", "here", "there")

#: Two writers of so few keys often write to the same file group.
FEW_KEYS = 6

#: Longer than any test, so that no heartbeat expires because the machine is busy.
SHARING = MultiWriter(HeartbeatPolicy(60.0, 10), clock_skew_ms=1)
LEASE_S = 600.0

#: For writers that die: short, so that the others roll them back before the end of the test. A
#: writer that is paused for longer is rolled back as well, and restarts.
MORTAL_SHARING = MultiWriter(HeartbeatPolicy(0.5, 4), clock_skew_ms=1)
#: If a writer dies under the lock, the others wait for so long. A step under the lock may be paused
#: for half of this time on a busy machine.
MORTAL_LEASE_S = 15.0

#: Small, so that each service is often due. Archival keeps the instants that cleaning retains.
COMPACTION = CompactionPolicy(4)
CLEANING = CleaningPolicy(commits=6)
ARCHIVAL = ArchivalPolicy(8, 12, delta_commits_to_compact=COMPACTION.after_commits)

#: An actor fails before one of so many writes, that is, within three or four batches.
_WRITES = 40
_END_S = 300.0
#: How long a writer waits for the first batches of the others.
_MEETING_S = 20.0


class _BusyLock(SystemClock):
    """The clock of a contended lock: a waiting writer retries soon."""

    def sleep(self, seconds: float) -> None:
        super().sleep(min(seconds, 0.03))


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of one commit: a value for each of some keys.

    Attributes:
        name: the name of the writer.
        number: the number of the batch, from 0 on.
        values: the value of each key.
    """

    name: str
    number: int
    values: Mapping[str, int]

    @classmethod
    def at_random(cls, name: str, number: int, keys: int = FEW_KEYS) -> Batch:
        """Draw a batch.

        The same name, number and keys give the same batch, so a second attempt writes the same
        records.
        """
        dice = random.Random(f"{name} {number}")
        chosen = dice.sample(range(keys), 2)
        return cls(name, number, {f"k{key}": dice.randrange(10**9) for key in chosen})

    @classmethod
    def of(cls, text: str) -> Batch:
        return cls(*json.loads(text))

    def __str__(self) -> str:
        return json.dumps([self.name, self.number, self.values])

    def rows(self) -> list[Row]:
        return [Row(key, 0, value, _region(key)) for key, value in self.values.items()]


def create_shared_table(storage: Storage, table_type: TableType = TableType.MERGE_ON_READ) -> None:
    """Create a table in which the later commit wins."""
    spec = TableSpec(
        name="shared",
        record_key=("id",),
        table_type=table_type,
        partition_by=("region",),
        ordering=(),
        merge_mode=MergeMode.COMMIT_TIME,
    )
    storage.create(PROPERTIES_PATH, spec.to_properties().to_bytes())


def shared_writer(
    storage: Storage,
    provider: LockProviderName = LockProviderName.STORAGE,
    multi_writer: MultiWriter | None = SHARING,
    has_metadata: bool = True,
    lease_s: float = LEASE_S,
) -> TableWriter:
    """Open a writer of a shared table, as a process does that has just started."""
    lock = open_lock(storage, lease_s=lease_s, clock=_BusyLock(), provider=provider)
    to = writer(storage, lock=lock, multi_writer=multi_writer)
    to.settings = replace(to.settings, metadata_table=has_metadata)
    return to


@dataclass
class Actor:
    """A process that works on a table, dies now and then, and restarts.

    Attributes:
        name: its name.
        open_writer: opens a writer on a storage.
        storage: the storage of the table.
        faults: how often it will die, or get no answer.
        failed: how often it has died, or got no answer.
        conflicts: how often it had to restart although it did not die.
        failure: the error that ended it.
    """

    name: str
    open_writer: Callable[[Storage], TableWriter]
    storage: Storage
    faults: int = 0
    failed: int = 0
    conflicts: int = 0
    failure: BaseException | None = None
    _dice: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._dice = random.Random(self.name)

    def run(self) -> None:
        """Run until the work is done; record the error if it fails."""
        try:
            while not self._run_once():
                pass
        except BaseException as error:
            self.failure = error

    def _run_once(self) -> bool:
        """Run from a start to a death, or to the end; return whether the work is done."""
        when: When = self._dice.choice(("before", "after", "lost", "doubtful"))
        nth = self._dice.randrange(_WRITES) if self.failed < self.faults else None
        storage = FaultyStorage(self.storage, nth, when)
        try:
            to = self.open_writer(storage)
            to.recover()
            self._work(to)
        except SimulatedCrash:
            pass
        except (Retriable, OutcomeUnknown):
            self.conflicts += 1
        else:
            return True
        finally:
            self.failed += storage.has_failed
        return False

    def _work(self, to: TableWriter) -> None:
        raise NotImplementedError


@dataclass
class Streamer(Actor):
    """Writes its batches in order, each once; the commits of the table record its progress.

    Attributes:
        batches: how many batches it writes.
        keys: how many keys the batches have.
        compacts: whether it compacts, too.
        meeting: if given, each streamer commits its first batch only when all have written theirs.
        compactions: how many compactions it has completed.
    """

    batches: int = 0
    keys: int = FEW_KEYS
    compacts: bool = True
    meeting: threading.Barrier | None = None
    compactions: int = 0

    def _work(self, to: TableWriter) -> None:
        while (number := self._next_number(to)) < self.batches:
            batch = Batch.at_random(self.name, number, self.keys)
            try:
                written = write_files(to, batch.rows())
                self._meet()
                to.commit(written, {BATCH: str(batch)})
            except Exception:
                to.abandon()
                raise
            to.clear_dead()
            if self.compacts:
                self.compactions += len(compact(to))

    def _meet(self) -> None:
        meeting, self.meeting = self.meeting, None
        if meeting is not None:
            with suppress(threading.BrokenBarrierError):  # another one has died before
                meeting.wait(_MEETING_S)

    def _next_number(self, to: TableWriter) -> int:
        to.table.refresh()
        active = self._numbers(_batches(to, to.table.timeline.completed(*COMMITS)))
        return max(active or self._numbers(history(to)), default=-1) + 1

    def _numbers(self, batches: Iterable[Batch]) -> list[int]:
        return [batch.number for batch in batches if batch.name == self.name]


@dataclass
class ServiceRunner(Actor):
    """Runs one table service again and again, until it is stopped.

    Attributes:
        service: runs the service, and returns the instants or files that it handled.
        pause_s: the time between two runs.
        stop: set to stop it.
        done: how many instants or files it has handled.
    """

    service: Callable[[TableWriter], Sized] = field(default=lambda _: ())
    pause_s: float = 0.2
    stop: threading.Event = field(default_factory=threading.Event)
    done: int = 0

    def _work(self, to: TableWriter) -> None:
        while not self.stop.wait(self.pause_s):
            to.table.refresh()
            to.clear_dead()
            self.done += len(self.service(to))


def compact(to: TableWriter) -> Sized:
    """Execute pending compactions, and one that is due."""
    return to.compact_if_due(COMPACTION, LocalRunner(1))


def clean_up(to: TableWriter) -> Sized:
    """Delete the files that the last commits do not need."""
    return clean(to.table, CLEANING)


def archive_instants(to: TableWriter) -> Sized:
    """Archive instants of the table and of its metadata table."""
    archived = archive(to.table, ARCHIVAL, CLEANING)
    compact_and_maintain_metadata_table(
        to.table, MetadataPolicies.for_data_table(CLEANING, ARCHIVAL)
    )
    return archived.instants if archived else ()


@contextmanager
def running(services: Sequence[ServiceRunner]) -> Iterator[None]:
    """Run services for the length of a ``with`` block; raise the error of one that failed."""
    threads = [threading.Thread(target=s.run, name=s.name, daemon=True) for s in services]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for service in services:
            service.stop.set()
        for thread in threads:
            thread.join(_END_S)
    for service, thread in zip(services, threads, strict=True):
        if service.failure is not None:
            raise service.failure
        assert not thread.is_alive(), f"{service.name} did not end"


def run_all(streamers: list[Streamer], limit_s: float) -> None:
    """Run all streamers at the same time; raise the error of one that failed."""
    threads = [threading.Thread(target=s.run, name=s.name, daemon=True) for s in streamers]
    deadline = time.monotonic() + limit_s
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    for streamer, thread in zip(streamers, threads, strict=True):
        if streamer.failure is not None:
            raise streamer.failure
        assert not thread.is_alive(), f"{streamer.name} did not end"


def history(to: TableWriter) -> Iterator[Batch]:
    """Read the batches of the completed commits, in the order in which they became visible."""
    return _batches(to, completed_commits(to))


def completed_commits(to: TableWriter) -> list[Instant]:
    """List all completed commits, active or archived, oldest completion first."""
    active = to.table.timeline.completed(*COMMITS)
    archived = to.table.store.load_archived().instants()
    both = {i.requested_at: i for i in (*archived, *active) if i.action in COMMITS}
    return sorted(both.values(), key=lambda i: (i.completed_at or "", i.requested_at))


def _batches(to: TableWriter, commits: Iterable[Instant]) -> Iterator[Batch]:
    for instant in commits:
        text = to.table.store.read_commit(instant).extra_metadata.get(BATCH)
        if text:
            yield Batch.of(text)


def check_history(storage: Storage, counts: Mapping[str, int]) -> None:
    """Check that the rows are those of all commits in order, and each batch was written once."""
    batches = list(history(writer(storage)))
    for name, count in counts.items():
        numbers = [batch.number for batch in batches if batch.name == name]
        assert numbers == list(range(count)), f"batches of {name}: {numbers}"
    expected: dict[str, int] = {}
    for batch in batches:
        expected.update(batch.values)
    assert {key: value for key, (_, value) in contents(storage).items()} == expected


def check_nothing_is_left(storage: Storage, to: TableWriter) -> None:
    """Wait until the heartbeats of dead writers expire, and check that recovery undoes them."""
    assert to.table.context.multi_writer is not None
    time.sleep(to.table.context.multi_writer.heartbeats.expires_after_s + 0.1)
    to.recover()
    to.compact_if_due(CompactionPolicy(10**6), LocalRunner(1))
    clean_up(to)
    table = writer(storage).table
    assert not table.timeline.pending()
    assert not storage.list_folder(HEARTBEAT_FOLDER)[1], "heartbeats of dead writers"
    archived = table.store.load_archived().instants()
    completed = {i.requested_at for i in (*table.timeline.completed(), *archived)}
    names = [path.rsplit("/", 1)[-1] for path in data_files(storage)]
    assert not [name for name in names if not any(instant in name for instant in completed)]


def plan_clustering(storage: Storage, group: FileGroupId) -> Instant:
    """Leave the plan of a clustering that will replace a file group."""
    store = writer(storage).table.store
    name = store.clock.next_instant(store.load().newest_time)
    one = {"partitionPath": group.partition_path, "fileId": group.file_id}
    record: dict[str, object] = {
        "operationType": "CLUSTER",
        "clusteringPlan": {"inputGroups": [{"slices": [one]}]},
    }
    is_v6 = store.version is FormatVersion.V6
    action = Action.REPLACE_COMMIT if is_v6 else Action.CLUSTERING
    planned = Instant(name, action, State.REQUESTED)
    store.create(planned, avro_container.encode("HoodieRequestedReplaceMetadata", record))
    return planned


@contextmanager
def quiet_threads() -> Iterator[None]:
    """Ignore errors of heartbeat threads whose process died: they end with its storage."""
    original = threading.excepthook

    def hook(args: threading.ExceptHookArgs) -> None:
        if not isinstance(args.exc_value, SimulatedCrash):
            original(args)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = original


def _region(key: str) -> str:
    return REGIONS[int(key[1:]) % len(REGIONS)]
