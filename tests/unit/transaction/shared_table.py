"""A small table of several processes, on one clock that a test moves."""

from __future__ import annotations

from lakemark.config.table_properties import TableType
from lakemark.model.commit_metadata import CommitMetadata, WriteStat
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.operations.table_writer import TableWriter
from lakemark.storage import Storage
from lakemark.timeline.content import encode_commit
from lakemark.transaction.heartbeat import HEARTBEAT_FOLDER
from tests.protocol.actors import Mode, create_table, open_writer
from tests.protocol.clocked_store import ClockedStore
from tests.protocol.virtual_time import VirtualTime
from tests.tables import Row, commit

PART_OF_A_HEARTBEAT_S = 70.0


class Table:
    """A table that begins with one row, and that several processes change."""

    def __init__(
        self,
        clock: VirtualTime,
        table_type: TableType = TableType.COPY_ON_WRITE,
        version: FormatVersion = FormatVersion.V9,
    ) -> None:
        self.clock, self.storage = clock, ClockedStore(clock)
        create_table(self.storage, clock, table_type, version, has_metadata=False)
        commit(self.open(), [Row("a", 1, 1)])

    def open(self, through: Storage | None = None, mode: Mode = Mode.MULTIPLE) -> TableWriter:
        return open_writer(through or self.storage, self.clock, mode)

    def rows(self) -> dict[str, int]:
        rows = self.open().table.scan(columns=["id", "v"]).to_reader().read_all().to_pylist()
        return {row["id"]: row["v"] for row in rows}

    def pending(self) -> list[Instant]:
        return list(self.open().table.timeline.pending())

    def beats(self) -> list[str]:
        return [info.name for info in self.storage.list_folder(HEARTBEAT_FOLDER)[1]]

    def wait_until_dead(self, *living: TableWriter) -> None:
        """Wait until all writers except ``living``, whose heartbeats continue, count as dead."""
        for _ in range(2):
            self.clock.sleep(PART_OF_A_HEARTBEAT_S)
            for one in living:
                beat(one)


def beat(to: TableWriter) -> None:
    """Renew the heartbeat of a writer, whose thread would wait for real time."""
    assert to._transaction is not None
    assert to._transaction._heartbeat is not None
    to._transaction._heartbeat._beat()


def inflight(of: TableWriter) -> Instant:
    """Return the pending instant of a writer."""
    assert of._transaction is not None
    return of._transaction.instant


def complete_as_apache(of: TableWriter, written: list[WriteStat]) -> None:
    """Complete the instant without the lock and without a check for rollbacks, like Apache Hudi."""
    prepare(of, written)
    of.table.store.publish(inflight(of), next_time(of), lambda: None)


def prepare(of: TableWriter, written: list[WriteStat]) -> None:
    """Prepare the content of the writer's commit."""
    metadata = CommitMetadata(write_stats=tuple(written), extra_metadata=of._table_facts())
    content = encode_commit(inflight(of).action, metadata, of.table.store.version)
    of.table.store.prepare(inflight(of), content)


def next_time(of: TableWriter) -> str:
    """Generate a time later than every time on the timeline."""
    store = of.table.store
    return store.clock.next_instant(store.load().newest_time)
