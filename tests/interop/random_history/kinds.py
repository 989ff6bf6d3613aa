"""The kinds of tables that random histories have, and how both programs open them."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from lakemark.config.table_properties import TableType
from lakemark.model.format_version import FormatVersion
from lakemark.operations.open_table import OpenTable
from lakemark.operations.table_writer import TableWriter
from lakemark.operations.writer_settings import WriterSettings
from lakemark.storage import StorageLocation, open_storage
from lakemark.storage.properties_file import read_properties
from lakemark.table import Table
from lakemark.timeline.locks.open_lock import LockProviderName, open_lock
from lakemark.timeline.locks.table_lock import Clock
from lakemark.transaction.heartbeat import HeartbeatPolicy
from lakemark.transaction.multi_writer import MultiWriter
from tests.interop.oracle import ApacheTable
from tests.interop.test_lookup_index import RECORD_INDEX
from tests.interop.test_writers import SHARED
from tests.storages import FaultyStorage
from tests.storages.faulty_storage import When
from tests.table_services import make_plain
from tests.tables import INDEX, SCHEMA, make

IndexName = Literal["bucket", "lookup", "record_index"]

#: A process sends one heartbeat, which expires after an hour; those of dead processes are aged. A
#: write of Apache Hudi that fails would go on sending heartbeats, because the JVM lives.
HEARTBEATS = HeartbeatPolicy(3600.0, 1)
LEASE_S = 60.0

_APACHES_INDEX: dict[IndexName, dict[str, str]] = {
    "bucket": {},
    "lookup": {"hoodie.index.type": "SIMPLE"},
    "record_index": {"hoodie.index.type": "RECORD_INDEX", **RECORD_INDEX},
}


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of table.

    Attributes:
        table_type, version: as in the properties of the table.
        index: how writers find the file group of a key.
        has_metadata: whether the table has a metadata table.
        non_blocking: whether all writers are non-blocking.
    """

    table_type: TableType
    version: FormatVersion
    index: IndexName
    has_metadata: bool
    non_blocking: bool = False

    def __str__(self) -> str:
        metadata = ", metadata table" if self.has_metadata else ""
        blocking = ", non-blocking" if self.non_blocking else ""
        return f"{self.table_type} version {self.version:d}, {self.index}{metadata}{blocking}"

    @property
    def is_merge_on_read(self) -> bool:
        """Whether the table has logs."""
        return self.table_type is TableType.MERGE_ON_READ

    @property
    def has_buckets(self) -> bool:
        """Whether the hash of a key determines its file group."""
        return self.index == "bucket"

    @classmethod
    def draw(cls, choose: random.Random) -> Kind:
        """Draw a kind of table that both programs write."""
        version = choose.choice((FormatVersion.V6, FormatVersion.V8, *[FormatVersion.V9] * 3))
        if version is not FormatVersion.V6 and choose.random() < 0.3:
            return cls(TableType.MERGE_ON_READ, version, "bucket", True, non_blocking=True)
        indexes: tuple[IndexName, ...] = ("bucket", "bucket", "lookup", "record_index")
        index = choose.choice(indexes[: 3 if version is FormatVersion.V6 else 4])
        has_metadata = index == "record_index" or choose.random() < 0.7
        return cls(choose.choice([*TableType]), version, index, has_metadata)

    def create(self, path: Path) -> None:
        """Create an empty table, as lakemark does."""
        storage = open_storage(StorageLocation(str(path)))
        if self.has_metadata:
            indexes = ("record_index",) if self.index == "record_index" else ()
            make(storage, self.table_type, indexes, self.version)
        else:
            make_plain(storage, self.table_type, self.version)

    def twin(self) -> ApacheTable:
        """Return the settings with which Apache Hudi writes the table."""
        extra = {**SHARED.extra, **_APACHES_INDEX[self.index]}
        extra["hoodie.client.heartbeat.interval_in_ms"] = str(int(1000 * HEARTBEATS.interval_s))
        extra["hoodie.client.heartbeat.tolerable.misses"] = str(HEARTBEATS.tolerable_misses)
        if self.index == "record_index":
            # Without its timeline server, Apache Hudi cannot overwrite partitions of such a table:
            # a task gets file slices of the metadata table without the paths of their base files.
            del extra["hoodie.embed.timeline.server"]
        if self.non_blocking:
            extra["hoodie.write.concurrency.mode"] = "NON_BLOCKING_CONCURRENCY_CONTROL"
        return replace(
            SHARED,
            name="orders",
            ordering=["ts"],
            table_type=self.table_type.value,
            version=int(self.version),
            has_metadata=self.has_metadata,
            extra=extra,
        )


@dataclass(frozen=True, slots=True)
class Process:
    """A process of lakemark that has just started.

    Attributes:
        kind: the kind of the table.
        storage: its connection to the table, which fails if the process is to die.
        opened: the open table.
    """

    kind: Kind
    storage: FaultyStorage
    opened: OpenTable

    @classmethod
    def start(
        cls, kind: Kind, path: Path, clock: Clock, nth: int | None = None, when: When = "before"
    ) -> Process:
        """Start a process; its write number ``nth`` fails, if it is not None."""
        storage = FaultyStorage(open_storage(StorageLocation(str(path))), nth, when)
        lock = open_lock(
            storage, lease_s=LEASE_S, clock=clock, provider=LockProviderName.FILE_SYSTEM
        )
        sharing = MultiWriter(HEARTBEATS, clock_skew_ms=1, non_blocking=kind.non_blocking)
        opened = OpenTable(storage, read_properties(storage), lock=lock, multi_writer=sharing)
        return cls(kind, storage, opened)

    def table(self) -> Table:
        """Return the table as Python programs use it."""
        return Table(self.opened, INDEX.bucket_count if self.kind.has_buckets else None)

    def writer(self) -> TableWriter:
        """Return a writer as pipelines use it."""
        return writer_of(self.kind, self.opened)


def writer_of(kind: Kind, opened: OpenTable) -> TableWriter:
    """Return a writer of an open table, as pipelines use it."""
    index = INDEX if kind.has_buckets else None
    settings = WriterSettings(index, "parquet", metadata_table=kind.has_metadata)
    return TableWriter(opened, SCHEMA, settings)
