"""Several writers of one table, each a thread that dies now and then; and what they must leave."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
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
from tests.tables import Row, commit, contents, data_files, writer

BATCH = "test.batch"
REGIONS = ("east", "north", "south", "west", "up", "down", "here", "there")

#: Two writers of so few keys often meet in a file group.
FEW_KEYS = 6

#: Longer than any test: nobody counts as dead only because the machine is busy.
SHARING = MultiWriter(HeartbeatPolicy(60.0, 10), clock_skew_ms=1)
LEASE_S = 600.0

#: Of writers that die: short, so that the others undo them before the end. Who stands still for
#: longer is undone as well, and starts again.
MORTAL_SHARING = MultiWriter(HeartbeatPolicy(0.5, 4), clock_skew_ms=1)
#: Whoever dies under the lock keeps the others waiting for so long. Half of it is how long a step
#: under the lock may stand still on a busy machine, since nobody publishes twice at once.
MORTAL_LEASE_S = 15.0

#: Small enough to be busy; what a clean keeps, an archival keeps.
COMPACTION = CompactionPolicy(4)
CLEANING = CleaningPolicy(commits=6)
ARCHIVAL = ArchivalPolicy(8, 12, delta_commits_to_compact=COMPACTION.every_delta_commits)

#: Before one of so many writes an actor fails: within three or four batches.
_WRITES = 40
_END_S = 300.0


class _BusyLock(SystemClock):
    """Of a lock that many want: who waits looks again soon."""

    def sleep(self, seconds: float) -> None:
        super().sleep(min(seconds, 0.03))


@dataclass(frozen=True, slots=True)
class Batch:
    """What one writer writes at once: a value for each of some keys.

    Attributes:
        name: of the writer.
        number: of its batches, from 0 on.
    """

    name: str
    number: int
    values: Mapping[str, int]

    @classmethod
    def at_random(cls, name: str, number: int, keys: int = FEW_KEYS) -> Batch:
        """The same for the same name and number, as records of a topic are."""
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


def make_shared(storage: Storage, table_type: TableType = TableType.MERGE_ON_READ) -> None:
    """Lay a table down in which the later commit wins."""
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
    """A writer of a shared table, as a process that just started has it."""
    lock = open_lock(storage, lease_s=lease_s, clock=_BusyLock(), provider=provider)
    to = writer(storage, lock=lock, multi_writer=multi_writer)
    to.settings = replace(to.settings, metadata_table=has_metadata)
    return to


@dataclass
class Actor:
    """A process that works on a table, dies now and then, and starts again.

    Attributes:
        name: tells it from others.
        open_writer: a writer over a storage.
        storage: of the table.
        faults: how often it is to die, or to get no answer.
        failed: how often it has.
        conflicts: how often it had to start again though it did not die.
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
        """Until its work is done; a failure is kept."""
        try:
            while not self._live():
                pass
        except BaseException as error:
            self.failure = error

    def _live(self) -> bool:
        """From a start to a death, or to the end; whether the work is done."""
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
    """Writes its batches in order, each once, as the table tells how far it has come.

    Attributes:
        batches: how many it writes.
        keys: of how many keys.
        compacts: whether it compacts, too.
        compactions: how many it did.
    """

    batches: int = 0
    keys: int = FEW_KEYS
    compacts: bool = True
    compactions: int = 0

    def _work(self, to: TableWriter) -> None:
        while (number := self._next_number(to)) < self.batches:
            batch = Batch.at_random(self.name, number, self.keys)
            try:
                commit(to, batch.rows(), {BATCH: str(batch)})
            except Exception:
                to.abandon()
                raise
            to.clear_dead()
            if self.compacts:
                self.compactions += len(compact(to))

    def _next_number(self, to: TableWriter) -> int:
        to.table.refresh()
        active = self._numbers(_batches(to, to.table.timeline.completed(*COMMITS)))
        return max(active or self._numbers(history(to)), default=-1) + 1

    def _numbers(self, batches: Iterable[Batch]) -> list[int]:
        return [batch.number for batch in batches if batch.name == self.name]


@dataclass
class Servant(Actor):
    """Does one service again and again, until it is told to stop.

    Attributes:
        service: what it does; returns what came of it.
        pause_s: from one time to the next.
        stop: tells it.
        done: how much it did.
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
    """What is pending, and what is due."""
    return to.compact_if_due(COMPACTION, LocalRunner(1))


def clean_up(to: TableWriter) -> Sized:
    """What the last commits do not need."""
    return clean(to.table, CLEANING)


def put_away(to: TableWriter) -> Sized:
    """Instants into the history; the metadata table's as well."""
    archived = archive(to.table, ARCHIVAL, CLEANING)
    compact_and_maintain_metadata_table(
        to.table, MetadataPolicies.for_data_table(CLEANING, ARCHIVAL)
    )
    return archived.instants if archived else ()


@contextmanager
def at_work(servants: Sequence[Servant]) -> Iterator[None]:
    """They work for the length of a ``with`` block; what one of them failed with is raised."""
    threads = [threading.Thread(target=s.run, name=s.name, daemon=True) for s in servants]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for servant in servants:
            servant.stop.set()
        for thread in threads:
            thread.join(_END_S)
    for servant, thread in zip(servants, threads, strict=True):
        if servant.failure is not None:
            raise servant.failure
        assert not thread.is_alive(), f"{servant.name} did not come to an end"


def run_all(streamers: list[Streamer], limit_s: float) -> None:
    """All at the same time; what one of them failed with is raised."""
    threads = [threading.Thread(target=s.run, name=s.name, daemon=True) for s in streamers]
    deadline = time.monotonic() + limit_s
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    for streamer, thread in zip(streamers, threads, strict=True):
        if streamer.failure is not None:
            raise streamer.failure
        assert not thread.is_alive(), f"{streamer.name} did not come to an end"


def history(to: TableWriter) -> Iterator[Batch]:
    """The batches of the completed commits, in the order in which they became visible."""
    return _batches(to, completed_commits(to))


def completed_commits(to: TableWriter) -> list[Instant]:
    """All there ever were, active or archived, oldest completion first."""
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
    """The table holds what the commits, one after the other, put in; each batch once, in order."""
    batches = list(history(writer(storage)))
    for name, count in counts.items():
        numbers = [batch.number for batch in batches if batch.name == name]
        assert numbers == list(range(count)), f"batches of {name}: {numbers}"
    expected: dict[str, int] = {}
    for batch in batches:
        expected.update(batch.values)
    assert {key: value for key, (_, value) in contents(storage).items()} == expected


def check_nothing_is_left(storage: Storage, to: TableWriter) -> None:
    """Once the dead have expired, the living undo all that they left."""
    assert to.table.context.multi_writer is not None
    time.sleep(to.table.context.multi_writer.heartbeats.expires_after_s + 0.1)
    to.recover()
    to.compact_if_due(CompactionPolicy(10**6), LocalRunner(1))
    clean_up(to)
    table = writer(storage).table
    assert not table.timeline.pending()
    assert not storage.list_folder(HEARTBEAT_FOLDER)[1], "heartbeats of nobody"
    archived = table.store.load_archived().instants()
    completed = {i.requested_at for i in (*table.timeline.completed(), *archived)}
    names = [path.rsplit("/", 1)[-1] for path in data_files(storage)]
    assert not [name for name in names if not any(instant in name for instant in completed)]


def plan_clustering(storage: Storage, group: FileGroupId) -> Instant:
    """What a writer leaves that plans to replace a file group."""
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
    """Heartbeats of a process that is dead end with its storage, which is no failure."""
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
