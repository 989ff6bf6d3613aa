"""Several writers of one table, each a thread that dies now and then; and what they must leave."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from sinks.hudi.table_writer import TableWriter
from sinks.hudi.upkeep import clean
from table.config.table_properties import PROPERTIES_PATH, MergeMode, TableType
from table.config.table_spec import TableSpec
from table.errors import OutcomeUnknown, Retriable
from table.execution.runner import LocalRunner
from table.model.action import COMMITS
from table.services.cleaning_plan import CleaningPolicy
from table.services.compaction import CompactionPolicy
from table.storage import Storage
from table.timeline.lock import LockProvider, open_lock
from table.transaction.heartbeat import HEARTBEAT_FOLDER, HeartbeatPolicy
from table.transaction.sharing import Sharing
from tests.storages import FaultyStorage, SimulatedCrash
from tests.storages.faulty_storage import When
from tests.tables import Row, commit, contents, data_files, writer

BATCH = "test.batch"
REGIONS = ("north", "south", "west")

#: Short, so that the dead are soon out of the way; long enough for a busy machine.
SHARING = Sharing(HeartbeatPolicy(0.5, 4), clock_skew_ms=1)
LEASE_S = 2.0

#: Before one of so many writes an actor fails: within three or four batches.
_WRITES = 40
_PAUSE_S, _END_S = 0.2, 60.0


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
    def at_random(cls, name: str, number: int) -> Batch:
        """The same for the same name and number, as records of a topic are."""
        dice = random.Random(f"{name} {number}")
        keys = dice.sample(range(24), 3)
        return cls(name, number, {f"k{key}": dice.randrange(10**9) for key in keys})

    @classmethod
    def of(cls, text: str) -> Batch:
        return cls(*json.loads(text))

    def __str__(self) -> str:
        return json.dumps([self.name, self.number, self.values])

    def rows(self) -> list[Row]:
        return [Row(key, 0, value, _region(key)) for key, value in self.values.items()]


def make_shared(storage: Storage, table_type: TableType = TableType.MERGE_ON_READ) -> None:
    """Lay a table down in which the later commit wins."""
    spec = TableSpec("shared", ("id",), table_type, ("region",), (), MergeMode.COMMIT_TIME)
    storage.create(PROPERTIES_PATH, spec.to_properties().to_bytes())


def shared_writer(
    storage: Storage,
    provider: LockProvider = LockProvider.STORAGE,
    sharing: Sharing | None = SHARING,
    has_metadata: bool = True,
    lease_s: float = LEASE_S,
) -> TableWriter:
    """A writer of a shared table, as a process that just started has it."""
    to = writer(storage)
    to.settings = replace(to.settings, metadata_table=has_metadata)
    lock = open_lock(storage, lease_s=lease_s, provider=provider)
    to.table.access = replace(to.table.access, lock=lock, sharing=sharing)
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
        compacts: whether it compacts, too.
        compactions: how many it did.
    """

    batches: int = 0
    compacts: bool = True
    compactions: int = 0

    def _work(self, to: TableWriter) -> None:
        while (number := self._next_number(to)) < self.batches:
            batch = Batch.at_random(self.name, number)
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
        numbers = [b.number for b in history(to) if b.name == self.name]
        return max(numbers, default=-1) + 1


@dataclass
class Servant(Actor):
    """Does one service again and again, until it is told to stop.

    Attributes:
        service: what it does; returns what came of it.
        stop: tells it.
        done: how much it did.
    """

    service: Callable[[TableWriter], Sized] = field(default=lambda _: ())
    stop: threading.Event = field(default_factory=threading.Event)
    done: int = 0

    def _work(self, to: TableWriter) -> None:
        while not self.stop.wait(_PAUSE_S):
            to.table.refresh()
            to.clear_dead()
            self.done += len(self.service(to))


def compact(to: TableWriter) -> Sized:
    """What is pending, and what is due after four delta commits."""
    return to.compact_if_due(CompactionPolicy(4), LocalRunner(1))


def clean_up(to: TableWriter) -> Sized:
    """What the last six commits do not need."""
    return clean(to.table, CleaningPolicy(commits=6))


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
    for instant in to.table.timeline.completed(*COMMITS):
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
    assert to.table.access.sharing is not None
    time.sleep(to.table.access.sharing.heartbeats.expires_after_s + 0.1)
    to.recover()
    to.compact_if_due(CompactionPolicy(10**6), LocalRunner(1))
    clean_up(to)
    timeline = writer(storage).table.timeline
    assert not timeline.pending()
    assert not storage.list_folder(HEARTBEAT_FOLDER)[1], "heartbeats of nobody"
    completed = {i.requested_at for i in timeline.completed()}
    names = [path.rsplit("/", 1)[-1] for path in data_files(storage)]
    assert not [name for name in names if not any(instant in name for instant in completed)]


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
