"""Apache Hudi queries a secondary index of lakemark, and both continue it.

That Apache Hudi reads the index is shown by an index with a wrong entry: its query misses a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakemark
from lakemark.metadata.metadata_store import MetadataStore
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER
from lakemark.metadata.secondary_columns import SecondaryColumn
from lakemark.metadata.secondary_index import encode_keys, index_version
from lakemark.metadata.secondary_index_records import encode_index_keys
from lakemark.model.format_version import FormatVersion
from lakemark.operations.create_index import create_index
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.operations.write import RowWriter
from lakemark.storage import StorageLocation
from lakemark.storage.folder_storage import FolderStorage
from lakemark.timeline.timeline_store import TimelineStore
from tests.depth import sample
from tests.interop.oracle import ApacheTable, Oracle
from tests.interop.test_lookup_index import RECORD_INDEX, SEVERAL_GROUPS

pytestmark = pytest.mark.oracle

SCHEMA = pa.schema(
    [("id", pa.string()), ("region", pa.string()), ("ts", pa.int64()), ("note", pa.string())]
)
REGIONS = ("north", "south")
SKIPPING = {"hoodie.metadata.enable": "true", "hoodie.enable.data.skipping": "true"}
NAME = "secondary_index_note"

#: Values with the characters that keys escape, and a null.
NOTES = ["a", "b$", "c\\", "d d", None, "é"]


@dataclass
class Model:
    """The rows of the table, which the largest ordering value of each key decides."""

    rows: dict[str, tuple[int, str | None]] = field(default_factory=dict)
    numbers: Iterable[int] = field(default_factory=count)

    def upserts(self, keys: Iterable[int], ts: int) -> pa.Table:
        """Create rows with other values, and apply them."""
        made = []
        for n, number in zip(keys, self.numbers, strict=False):
            made.append((f"k{n:03d}", REGIONS[n % 2], ts, NOTES[number % len(NOTES)]))
        for key, _, at, note in made:
            if key not in self.rows or self.rows[key][0] <= at:
                self.rows[key] = at, note
        return pa.table(list(zip(*made, strict=True)), schema=SCHEMA)

    def deletes(self, keys: Iterable[int]) -> list[str]:
        gone = [f"k{n:03d}" for n in keys]
        for key in gone:
            self.rows.pop(key, None)
        return gone

    def with_note(self, note: str | None) -> list[str]:
        return sorted(key for key, (_, one) in self.rows.items() if one == note)


def open_at(path: Path) -> OpenTable:
    return open_table(StorageLocation(str(path)))


def check(oracle: Oracle, path: Path, model: Model) -> None:
    """Check that both find the rows of each value, and that the index equals the rows."""
    table = lakemark.open(path)
    assert NAME in table.properties.metadata_partitions
    assert table.metadata_differences() == []
    rows = table.snapshot(SCHEMA.names).read_all().to_pylist()
    assert {row["id"]: (row["ts"], row["note"]) for row in rows} == model.rows
    for note in NOTES:
        where = pc.field("note").is_null() if note is None else pc.field("note") == note
        assert sorted(
            table.scan(columns=["id"], where=where).to_table()["id"].to_pylist()
        ) == model.with_note(note)
    # The whole index equals the rows, so a part of the values proves that Apache Hudi reads it.
    notes = sample(filter(None, NOTES), one_in=3, name=str(model.rows))
    assert found_by_apache(oracle, path, notes) == {n: model.with_note(n) for n in notes}


def found_by_apache(oracle: Oracle, path: Path, notes: Sequence[str]) -> dict[str, list[str]]:
    """Find the keys of each value, each in its own scan that may skip files."""
    with oracle.named("skipped", path), oracle.settings(SKIPPING):
        scans = [
            f"SELECT {n} AS n, id FROM skipped WHERE note = {_quoted(note)}"
            for n, note in enumerate(notes)
        ]
        rows = oracle.query(" UNION ALL ".join(scans)).to_pylist()
    return {
        note: sorted(row["id"] for row in rows if row["n"] == n) for n, note in enumerate(notes)
    }


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\") + "'"


KINDS = [("MERGE_ON_READ", 9), ("COPY_ON_WRITE", 9), ("MERGE_ON_READ", 8)]


@pytest.mark.parametrize(("table_type", "version"), sample(KINDS, one_in=3))
def test_both_continue_the_index(
    oracle: Oracle,
    tmp_path: Path,
    table_type: Literal["MERGE_ON_READ", "COPY_ON_WRITE"],
    version: int,
) -> None:
    path, model = tmp_path / "orders", Model()
    apache = ApacheTable(
        "orders",
        ["id"],
        ["region"],
        ["ts"],
        table_type=table_type,
        version=version,
        has_metadata=True,
        extra={"hoodie.index.type": "RECORD_INDEX", **RECORD_INDEX},
    )
    oracle.write(path, model.upserts(range(40), 10), apache, options=SEVERAL_GROUPS)
    create_index(open_at(path), "note", "note")
    check(oracle, path, model)
    oracle.write(path, model.upserts([*range(5, 25), 41, 42], 20), apache)
    check(oracle, path, model)
    table = lakemark.open(path)
    table.upsert(model.upserts([*range(15, 35), *range(43, 50)], 30))
    table.upsert(model.upserts(range(3, 20), 15))  # some of them are late
    table.delete(model.deletes([1, 2, 44]))
    check(oracle, path, model)
    oracle.write(path, model.upserts([0, 1, 44, *range(45, 55)], 40), apache)
    if table_type == "MERGE_ON_READ":
        table.refresh()
        table.compact()
    lakemark.open(path).upsert(model.upserts(range(0, 55, 3), 50))
    check(oracle, path, model)
    _lose(path, "a", model.with_note("a"))
    assert found_by_apache(oracle, path, ["a"])["a"] == [], "Apache Hudi reads the index"


def _lose(path: Path, note: str, record_keys: list[str]) -> None:
    """Remove a value from the index, in the metadata commit of a commit without rows."""
    table = open_at(path)
    version = index_version(FormatVersion(table.version))
    column = SecondaryColumn(NAME, "note", version)
    gone = encode_keys(pa.array([note] * len(record_keys)), pa.array(record_keys))
    changes = encode_index_keys(pa.array([], pa.string()), gone, column)
    RowWriter(table, None).commit_schema()
    instant = max(table.store.load().completed(), key=lambda one: one.completed_at or "")
    own = FolderStorage(table.storage, METADATA_FOLDER)
    instants = TimelineStore(own, version=table.version, clock=table.store.clock)
    store = MetadataStore(own, instants, instants.load())
    store.commit(instant, {NAME: changes}, lambda: None)
