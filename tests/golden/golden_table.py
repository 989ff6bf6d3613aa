"""Tables that Apache Hudi 1.2.0 wrote, unpacked, with the rows that Apache Hudi reads from them."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakemark.config.table_properties import TableProperties
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.read.cdc.scan import CdcScan
from lakemark.read.queries import Incremental, ReadOptimized, Snapshot
from lakemark.read.scan import Scan
from lakemark.storage import Storage, StorageLocation
from lakemark.view.file_system_view import FileSystemView

ARCHIVES = Path(__file__).parent

#: The names of all golden tables.
ALL_TABLES = sorted(path.name.removesuffix(".tar.gz") for path in ARCHIVES.glob("*.tar.gz"))

#: The names of the tables whose version lakemark reads but does not write.
OLD_TABLES = [name for name in ALL_TABLES if name[:3] in ("v2_", "v3_", "v4_", "v5_")]

Row = dict[str, Any]

_BEGIN = "hoodie.datasource.read.begin.instanttime"
_END = "hoodie.datasource.read.end.instanttime"


@dataclass(frozen=True)
class GoldenTable:
    """A table, opened with ``open_table``, and the answers of Apache Hudi.

    Attributes:
        root: the table's folder; ``expected`` and ``meta.json`` are next to it.
        table: the open table.
    """

    root: Path
    table: OpenTable

    @property
    def storage(self) -> Storage:
        return self.table.storage

    @property
    def properties(self) -> TableProperties:
        return self.table.properties

    @property
    def view(self) -> FileSystemView:
        return self.table.view()

    @cached_property
    def queries(self) -> dict[str, dict[str, str]]:
        """The queries that Apache Hudi ran, with their options."""
        meta = json.loads((self.root.parent / "meta.json").read_text("utf-8"))
        queries: dict[str, dict[str, str]] = meta["queries"]
        return queries

    def expected(self, query: str) -> pa.Table:
        """Read the rows that Apache Hudi returned for this query."""
        return pq.read_table(self.root.parent / "expected" / f"{query}.parquet")


def unpack(name: str, folder: Path) -> GoldenTable:
    """Unpack a table into a folder that the caller removes.

    Modification times are kept, because in version 6 they are the completion times of instants.
    """
    with tarfile.open(ARCHIVES / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return open_golden(name, folder)


def open_golden(name: str, folder: Path) -> GoldenTable:
    """Open a table that was unpacked into this folder."""
    root = folder / name / "table"
    return GoldenTable(root, open_table(StorageLocation(str(root))))


def ask(table: OpenTable, query: str, options: Mapping[str, str]) -> Scan | CdcScan:
    """Plan the same query as Apache Hudi ran; the query's name begins with its kind."""
    if query.startswith("cdc"):
        return table.changes(options["begin"], options.get("end"))
    if query.startswith("incremental"):
        return table.scan(Incremental(options[_BEGIN], options.get(_END)))
    if query.startswith("as_of"):
        return table.scan(Snapshot(options["as.of.instant"]))
    return table.scan(ReadOptimized() if query == "read_optimized" else Snapshot())


def sorted_rows(rows: pa.Table) -> list[Row]:
    """Sort the rows, and the entries of maps, which have no order in Avro.

    Times have no zone, as Spark writes them, and are in UTC.
    """
    columns = [_without_zone(column) for column in rows.columns]
    listed: list[Row] = pa.table(columns, rows.column_names).to_pylist()
    for name in (field.name for field in rows.schema if pa.types.is_map(field.type)):
        for row in listed:
            row[name] = row[name] and sorted(row[name])
    names = [name for name in (PARTITION_PATH, RECORD_KEY) if name in rows.column_names]
    return sorted(listed, key=lambda row: str(([row[name] for name in names], row)))


def plain_types(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    """List names and types; the unit of times is ignored, because Spark writes nanoseconds."""
    return [
        (field.name, pa.timestamp("us") if pa.types.is_timestamp(field.type) else field.type)
        for field in schema
    ]


def _without_zone(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.timestamp("us")) if pa.types.is_timestamp(column.type) else column
