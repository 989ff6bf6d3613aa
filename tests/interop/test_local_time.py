"""lakemark and Apache Hudi write in turn to a table whose timeline is in local time.

Times that are generated in two zones are out of order. Logs of the writer whose clock is behind
then belong to slices that the other has compacted, and both readers lose their rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from lakemark.timeline.clock import TimelineZoneUnknown
from tests.fixtures.oracle import started_oracle
from tests.interop import lakemark
from tests.interop.lakemark import LakemarkWriter
from tests.interop.oracle import ApacheTable, Oracle

pytestmark = pytest.mark.oracle

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])
IN_LOCAL_TIME = {"hoodie.table.timeline.timezone": "LOCAL"}


@dataclass(frozen=True)
class ApacheInZone:
    """A process of Apache Hudi, and the time zone of its JVM."""

    zone: str
    oracle: Oracle


@pytest.fixture(scope="module", params=["America/New_York", "Asia/Tokyo"])
def apache(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApacheInZone]:
    with started_oracle(tmp_path_factory.mktemp("oracle"), request.param) as oracle:
        yield ApacheInZone(request.param, oracle)


@dataclass
class Turns:
    """A table, its expected rows, and its two writers."""

    path: Path
    twin: ApacheTable
    apache: ApacheInZone
    timezone: str | None
    rows: dict[str, int] = field(default_factory=dict)
    version: int = 0

    def apache_writes(self, *keys: int) -> None:
        self.apache.oracle.write(self.path, self._next(keys), self.twin)

    def lakemark_writes(self, *keys: int) -> None:
        self.writer().upsert(self._next(keys))

    def writer(self) -> LakemarkWriter:
        """Open the table with lakemark, as a process does that has just started."""
        opened = LakemarkWriter.open(self.path, self.twin, SCHEMA, self.timezone)
        opened.writer.recover()
        return opened

    def check(self) -> None:
        """Check the rows of both readers, and that no instant is earlier than the one before."""
        for rows in (lakemark.read_snapshot(self.path), self.apache.oracle.read(self.path)):
            assert {row["id"]: row["v"] for row in rows.to_pylist()} == self.rows
            assert rows.num_rows == len(self.rows)

    def _next(self, keys: tuple[int, ...]) -> pa.Table:
        self.version += 1
        changed = {f"k{key}": self.version for key in range(*keys)}
        self.rows |= changed
        return pa.table({"id": list(changed), "v": list(changed.values())}, SCHEMA)


@pytest.fixture
def in_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Set ``TZ`` of this process."""
    yield monkeypatch
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("version", "has_metadata", "is_elsewhere"),
    [(9, True, False), (9, False, True), (6, False, True)],
    ids=["same zone", "lakemark in UTC with the setting", "version 6"],
)
def test_no_row_is_lost_if_both_write_a_table_in_local_time_in_turn(
    apache: ApacheInZone,
    in_zone: pytest.MonkeyPatch,
    tmp_path: Path,
    version: int,
    has_metadata: bool,
    is_elsewhere: bool,
) -> None:
    in_zone.setenv("TZ", "UTC" if is_elsewhere else apache.zone)
    time.tzset()
    twin = ApacheTable("t", ["id"], version=version, has_metadata=has_metadata, extra=IN_LOCAL_TIME)
    turns = Turns(tmp_path / "t", twin, apache, apache.zone if is_elsewhere else None)
    turns.apache_writes(0, 20)
    turns.apache_writes(10, 25)
    if is_elsewhere:
        with pytest.raises(TimelineZoneUnknown, match=r"table\.timeline_timezone"):
            LakemarkWriter.open(turns.path, twin, SCHEMA)
    turns.lakemark_writes(5, 15)
    turns.check()
    turns.apache_writes(0, 10)
    turns.check()
    turns.lakemark_writes(20, 30)
    assert turns.writer().compact()
    turns.apache_writes(15, 30)
    turns.check()
    assert apache.oracle.compact(turns.path)
    turns.lakemark_writes(3, 28)
    turns.check()
    instants = [
        time_of
        for one in open_table(StorageLocation(str(turns.path))).timeline.completed()
        for time_of in (one.requested_at, one.completed_at or "")
    ]
    assert instants == sorted(instants), "each action began after the one before it had completed"
