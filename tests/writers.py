"""Several writers of one table, each a thread that dies now and then; and what they must leave."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from sinks.hudi.table_writer import TableWriter
from table.config.table_properties import PROPERTIES_PATH, MergeMode, TableType
from table.config.table_spec import TableSpec
from table.errors import OutcomeUnknown, Retriable
from table.execution.runner import LocalRunner
from table.model.action import COMMITS
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
) -> TableWriter:
    """A writer of a shared table, as a process that just started has it."""
    to = writer(storage)
    to.settings = replace(to.settings, metadata_table=has_metadata)
    lock = open_lock(storage, lease_s=LEASE_S, provider=provider)
    to.table.access = replace(to.table.access, lock=lock, sharing=sharing)
    return to


@dataclass
class Streamer:
    """Writes its batches in order, each once, as the table tells how far it has come.

    Attributes:
        name: of the writer.
        batches: how many it writes.
        open_writer: a writer over a storage.
        storage: of the table.
        lives: at how many of its starts it is going to die.
    """

    name: str
    batches: int
    open_writer: Callable[[Storage], TableWriter]
    storage: Storage
    lives: int = 0
    conflicts: int = 0
    deaths: int = 0
    compactions: int = 0
    failure: BaseException | None = None
    _dice: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._dice = random.Random(self.name)

    def run(self) -> None:
        """Until all batches are in the table; a failure is kept."""
        try:
            while self._next_number(self.storage) < self.batches:
                self._live()
        except BaseException as error:
            self.failure = error

    def _live(self) -> None:
        """From a start to a death, or to the end."""
        storage: Storage = self.storage
        if self.deaths < self.lives:
            when: When = "before" if self._dice.random() < 0.5 else "after"
            storage = FaultyStorage(storage, self._dice.randrange(120), when)
        try:
            self._stream(storage)
        except SimulatedCrash:
            self.deaths += 1
        except (Retriable, OutcomeUnknown):
            self.conflicts += 1

    def _stream(self, storage: Storage) -> None:
        to = self.open_writer(storage)
        to.recover()
        while (number := self._next_number(storage)) < self.batches:
            batch = Batch.at_random(self.name, number)
            try:
                commit(to, batch.rows(), {BATCH: str(batch)})
            except Exception:
                to.abandon()
                raise
            to.clear_dead()
            self.compactions += len(to.compact_if_due(CompactionPolicy(4), LocalRunner(1)))

    def _next_number(self, storage: Storage) -> int:
        numbers = [b.number for b in history(writer(storage)) if b.name == self.name]
        return max(numbers, default=-1) + 1


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
    time.sleep(SHARING.heartbeats.expires_after_s + 0.1)
    to.recover()
    to.compact_if_due(CompactionPolicy(10**6), LocalRunner(1))
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
