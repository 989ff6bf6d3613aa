"""Tables that a Python program creates and changes with ``import lakemark`` alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pyarrow as pa

import lakemark
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation

SCHEMA = pa.schema(
    [("id", pa.string()), ("region", pa.string()), ("ts", pa.int64()), ("v", pa.int32())]
)

#: Fast clocks of one machine; heartbeats that no test outlives.
FAST = lakemark.MultiWriter(lakemark.HeartbeatPolicy(60.0, 10), clock_skew_ms=1)


@dataclass(frozen=True)
class Kind:
    """One kind of table that the API must serve."""

    table_type: str
    version: int
    store: str

    def __str__(self) -> str:
        return f"{self.table_type}-v{self.version}-{self.store}"


KINDS = [
    Kind(table_type, version, store)
    for table_type in ("MERGE_ON_READ", "COPY_ON_WRITE")
    for version in (6, 8, 9)
    for store in ("disk", "memory")
]


def location(store: str, folder: Path) -> str:
    return f"memory://{uuid4().hex}/orders" if store == "memory" else str(folder / "orders")


def create(
    path: str,
    table_type: str = "MERGE_ON_READ",
    version: int = 9,
    buckets: int = 2,
    sharing: lakemark.MultiWriter = FAST,
) -> lakemark.Table:
    return lakemark.create(
        path,
        schema=SCHEMA,
        record_key=["id"],
        partition_by=["region"],
        ordering=["ts"],
        table_type=table_type,
        version=version,
        buckets=buckets,
        multi_writer=sharing,
    )


def reopen(path: str) -> lakemark.Table:
    """Open the table again, as another process would."""
    return lakemark.open(path, multi_writer=FAST)


def rows(*listed: tuple[str, str, int, int]) -> pa.Table:
    """Create rows with the columns id, region, ts and v."""
    return pa.Table.from_pylist(
        [dict(zip(SCHEMA.names, row, strict=True)) for row in listed], schema=SCHEMA
    )


def contents(table: lakemark.Table) -> dict[str, tuple[str, int, int]]:
    """Read the rows by key, as a new process would."""
    found = lakemark.open(table.location).snapshot(SCHEMA.names).read_all().to_pylist()
    assert len({row["id"] for row in found}) == len(found), "a key is there twice"
    return {row["id"]: (row["region"], row["ts"], row["v"]) for row in found}


def instants(table: lakemark.Table, *actions: str) -> list[str]:
    """Return the requested times of the completed instants of these actions."""
    completed = reopen(table.location).timeline.completed()
    return [i.requested_at for i in completed if i.action.value in actions]


def write_many(table: lakemark.Table, times: Iterable[int]) -> None:
    """Commit a version of one row for each time."""
    for ts in times:
        table.upsert(rows(("a", "north", ts, ts)))


def operations(table: lakemark.Table) -> list[str]:
    """Return the operation of each completed instant."""
    opened = open_table(StorageLocation(table.location))
    return [opened.store.read_commit(one).operation for one in opened.timeline.completed()]


def files(table: lakemark.Table) -> list[str]:
    """Return the paths of the files of the newest slices."""
    found = []
    for one in open_table(StorageLocation(table.location)).view().latest_slices():
        found += [log.path for log in one.logs]
        if one.base is not None:
            found.append(one.base.path)
    return sorted(found)
