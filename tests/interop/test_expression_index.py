"""Apache Hudi queries expression indexes that lakemark continues or creates, and the reverse.

That Apache Hudi skips files by an index is shown by records that exclude the value of a row: its
query then misses the row.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest

import lakemark
from lakemark.codec.bloom import BLOOM_FILTER, TYPE_CODE, BloomFilterBuilder
from lakemark.execution.runner import LocalRunner
from lakemark.metadata.bloom_filter_records import StoredFilter, encode_filters
from lakemark.metadata.column_stats.derive import files_of
from lakemark.metadata.column_stats.encode import statistics_encoder
from lakemark.metadata.column_stats.encode_batch import COLUMN_STATS_TYPE
from lakemark.metadata.index_keys import column_stats_key
from lakemark.metadata.metadata_store import MetadataStore
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER
from lakemark.metadata.record_changes import RecordChanges
from lakemark.model.column_ranges import NO_SIZE
from lakemark.model.format_version import FormatVersion
from lakemark.operations.change_version import change_table_version
from lakemark.operations.write import RowWriter
from lakemark.storage.folder_storage import FolderStorage
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.view.file_lister import DataFile
from tests.depth import SEED, sample
from tests.interop.oracle import ApacheTable, Oracle
from tests.interop.test_created_indexes import LOCKED
from tests.interop.test_secondary_index import SCHEMA, SKIPPING, Model, open_at

pytestmark = pytest.mark.oracle

DAY = 86_400
DAYS, NOTES, IDS = "expr_index_days", "expr_index_notes", "expr_index_ids"
NO_DAY = "1999-09-09"
EXPRESSIONS = {
    DAYS: "from_unixtime(ts, 'yyyy-MM-dd')",
    NOTES: "upper(note)",
    IDS: "upper(id)",
}
IN_SQL = {
    "days": "column_stats(ts) OPTIONS(expr='from_unixtime', format='yyyy-MM-dd')",
    "notes": "column_stats(note) OPTIONS(expr='upper')",
    "ids": "bloom_filters(id) OPTIONS(expr='upper')",
}


def apache_table(
    table_type: Literal["MERGE_ON_READ", "COPY_ON_WRITE"], version: int
) -> ApacheTable:
    return ApacheTable(
        "orders",
        ["id"],
        ["region"],
        ["ts"],
        table_type=table_type,
        version=version,
        has_metadata=True,
        extra={"hoodie.index.type": "GLOBAL_SIMPLE"},
    )


def at(day: int) -> int:
    """Return a time of a day, in seconds: so late that the day is another one in other zones."""
    return day * DAY + 23 * 3600


def day_of(ts: int) -> str:
    return datetime.fromtimestamp(ts, UTC).strftime("%Y-%m-%d")


def check(oracle: Oracle, path: Path, model: Model) -> None:
    """Check the indexes by the files, and the rows that both find."""
    table = lakemark.open(path)
    assert {*indexes_of(table)} <= {*table.properties.metadata_partitions}
    assert table.metadata_differences() == []
    rows = table.snapshot(SCHEMA.names).read_all().to_pylist()
    assert {row["id"]: (row["ts"], row["note"]) for row in rows} == model.rows
    # The indexes equal the files, so a few values prove that Apache Hudi reads them.
    check_found(oracle, path, model, indexes_of(table))


def check_validation(oracle: Oracle, path: Path) -> None:
    """Check that the validation of Apache Hudi finds no difference."""
    with oracle.named("validated", path):
        call = "CALL validate_metadata_table_files(table => 'validated', verbose => true)"
        validated = oracle.query(call).to_pylist()
    assert validated
    assert all(row["is_present_in_fs"] == row["is_present_in_metadata"] for row in validated)


def indexes_of(table: lakemark.Table) -> Sequence[str]:
    """Return the indexes of a table; Apache Hudi 1.2.0 fails at logs in one of bloom filters."""
    return (DAYS, NOTES) if table.properties.is_merge_on_read else (DAYS, NOTES, IDS)


def check_found(oracle: Oracle, path: Path, model: Model, indexes: Sequence[str]) -> None:
    """Check that Apache Hudi finds the rows with a value of each expression."""
    drawn = random.Random(f"{SEED} {model.rows}")
    key = drawn.choice(sorted(model.rows))
    day = day_of(model.rows[key][0])
    notes = sorted({note.upper() for _, note in model.rows.values() if note is not None})
    note = drawn.choice(notes)
    wanted = {
        DAYS: {day: keys_with(model, days=[day]), NO_DAY: []},
        NOTES: {note: keys_with(model, notes=[note])},
        IDS: {key.upper(): [key]},
    }
    for partition in indexes:
        values = wanted[partition]
        assert found_by_apache(oracle, path, EXPRESSIONS[partition], [*values]) == values, partition


def keys_with(
    model: Model, days: Sequence[str] | None = None, notes: Sequence[str] | None = None
) -> list[str]:
    """Return the keys of the rows with one of the days, or of the notes in upper case."""
    return sorted(
        key
        for key, (ts, note) in model.rows.items()
        if (days is None or day_of(ts) in days) and (notes is None or (note or "").upper() in notes)
    )


def found_by_apache(
    oracle: Oracle, path: Path, expression: str, values: Sequence[str]
) -> dict[str, list[str]]:
    """Find the keys of each value of an expression, each in its own scan that may skip files."""
    with oracle.named("skipped", path), oracle.settings(SKIPPING):
        scans = [
            f"SELECT {n} AS n, id FROM skipped WHERE {expression} = {_quoted(value)}"
            for n, value in enumerate(values)
        ]
        rows = oracle.query(" UNION ALL ".join(scans)).to_pylist()
    return {
        value: sorted(row["id"] for row in rows if row["n"] == n) for n, value in enumerate(values)
    }


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\") + "'"


KINDS: list[tuple[Literal["MERGE_ON_READ", "COPY_ON_WRITE"], int]] = [
    ("MERGE_ON_READ", 9),
    ("COPY_ON_WRITE", 9),
    ("MERGE_ON_READ", 8),
]


@pytest.mark.parametrize(("table_type", "version"), sample(KINDS, one_in=3))
def test_lakemark_continues_indexes_of_apache_hudi(
    oracle: Oracle,
    tmp_path: Path,
    table_type: Literal["MERGE_ON_READ", "COPY_ON_WRITE"],
    version: int,
) -> None:
    path, model, apache = tmp_path / "orders", Model(), apache_table(table_type, version)
    oracle.write(path, model.upserts(range(40), at(10)), apache)
    oracle.write(path, model.upserts(range(5, 15), at(20)), apache)
    indexes = indexes_of(lakemark.open(path))
    with oracle.named("indexed", path), oracle.settings({**LOCKED, **apache.version_options}):
        for partition in indexes:
            name = partition.removeprefix("expr_index_")
            oracle.execute(f"CREATE INDEX {name} ON indexed USING {IN_SQL[name]}")
    check(oracle, path, model)
    table = lakemark.open(path)
    table.upsert(model.upserts([*range(10, 25), 41, 42], at(30)))
    table.upsert(model.upserts(range(3, 20), at(15)))  # some of them are late
    table.delete(model.deletes([1, 2, 41]))
    check(oracle, path, model)
    if table_type == "MERGE_ON_READ":
        table.compact()
        check(oracle, path, model)
    oracle.write(path, model.upserts([0, 1, *range(40, 55)], at(40)), apache)
    check(oracle, path, model)
    table = lakemark.open(path)
    undone = table.upsert(model_copy(model).upserts(range(0, 50, 3), at(50)))
    assert undone.instant is not None
    table.rollback(undone.instant)
    lakemark.open(path).clean(retain_commits=1)
    check(oracle, path, model)
    check_validation(oracle, path)
    exclude(path)
    if IDS in indexes:
        found = found_by_apache(oracle, path, EXPRESSIONS[IDS], ["K000"])
        assert found["K000"] == [], "Apache Hudi skips files by bloom filters"
    day = day_of(model.rows["k000"][0])
    found = found_by_apache(oracle, path, EXPRESSIONS[DAYS], [day])
    assert found[day] == [], "Apache Hudi skips files by statistics"


@pytest.mark.parametrize("table_type", sample(["MERGE_ON_READ", "COPY_ON_WRITE"], one_in=2))
def test_apache_hudi_continues_indexes_of_lakemark(
    oracle: Oracle, tmp_path: Path, table_type: Literal["MERGE_ON_READ", "COPY_ON_WRITE"]
) -> None:
    path, model = tmp_path / "orders", Model()
    apache = apache_table(table_type, 9)
    oracle.write(path, model.upserts(range(40), at(10)), apache)
    table = lakemark.open(path)
    for partition in indexes_of(table):
        kind = "bloom_filters" if partition == IDS else "column_stats"
        name = partition.removeprefix("expr_index_")
        table.create_index(name, expression=EXPRESSIONS[partition], kind=kind)
    table.upsert(model.upserts([*range(5, 20), 41], at(20)))
    check(oracle, path, model)
    in_tokyo = {day_of(at(20) + 9 * 3600): keys_with(model, days=[day_of(at(20))])}
    with oracle.settings({"spark.sql.session.timeZone": "Asia/Tokyo"}):
        assert found_by_apache(oracle, path, EXPRESSIONS[DAYS], [*in_tokyo]) == in_tokyo
    oracle.write(path, model.upserts([*range(15, 35), 42], at(30)), apache)
    check(oracle, path, model)
    if table_type == "MERGE_ON_READ":
        oracle.compact(path, options={"hoodie.metadata.enable": "true"})
        check(oracle, path, model)
    table = lakemark.open(path)
    table.drop_index("notes")
    with oracle.named("indexed", path), oracle.settings(LOCKED):
        oracle.execute(f"CREATE INDEX notes ON indexed USING {IN_SQL['notes']}")
        oracle.execute("DROP INDEX days ON indexed")
    table.create_index("days", expression=EXPRESSIONS[DAYS])
    table.upsert(model.upserts(range(0, 55, 3), at(60)))
    check(oracle, path, model)
    check_validation(oracle, path)


def test_apache_hudi_reads_the_indexes_that_a_downgrade_keeps(
    oracle: Oracle, tmp_path: Path
) -> None:
    path, twin = tmp_path / "ours", tmp_path / "theirs"
    schema = pa.schema([("id", pa.string()), ("note", pa.string()), ("born", pa.date32())])
    rows = [{"id": f"k{n}", "note": f"N{n}", "born": date(2020 + n, 5, 5)} for n in range(3)]
    table = lakemark.create(path, schema=schema, record_key="id", index="lookup")
    table.upsert(pa.Table.from_pylist(rows, schema))
    table.create_index("years", expression="year(born)")
    table.create_index("notes", expression="lower(note)")
    shutil.copytree(path, twin)
    change_table_version(open_at(path), FormatVersion.V8, LocalRunner(1))
    with oracle.named("t", twin):
        oracle.query("CALL downgrade_table(table => 't', to_version => 'EIGHT')")
    of_apache = lakemark.open(twin)
    assert (of_apache.version, of_apache.indexes) == (8, []), "Apache Hudi drops both"
    assert [one.name for one in lakemark.open(path).indexes] == ["notes"]
    assert found_by_apache(oracle, path, "lower(note)", ["n1", "n7"]) == {"n1": ["k1"], "n7": []}
    by_year = [f"SELECT id FROM t WHERE year(born) = {year}" for year in (2021, 1999)]
    with oracle.named("t", path), oracle.settings(SKIPPING):
        assert [oracle.query(each)["id"].to_pylist() for each in by_year] == [["k1"], []]


def test_apache_hudi_uses_an_index_for_other_conditions_on_its_column(
    oracle: Oracle, tmp_path: Path
) -> None:
    """So its answers lack rows, and a column should have an index only if this does not matter."""
    path, model = tmp_path / "orders", Model()
    table = lakemark.create(
        path, schema=SCHEMA, record_key="id", partition_by="region", table_type="copy_on_write"
    )
    table.upsert(model.upserts(range(2), at(10)))
    table.create_index("notes", expression=EXPRESSIONS[NOTES])
    assert found_by_apache(oracle, path, "note", ["a"]) == {"a": []}, "k000 is not found"
    table.drop_index("notes")
    assert found_by_apache(oracle, path, "note", ["a"]) == {"a": ["k000"]}


def model_copy(model: Model) -> Model:
    return Model(dict(model.rows), model.numbers)


def exclude(path: Path) -> None:
    """Let the indexes exclude all values of all files, in the metadata of a commit without rows."""
    table = open_at(path)
    files = [file for one in table.view().latest_slices() for file in files_of([one])]
    nothing = BloomFilterBuilder(1).footer()
    empty = StoredFilter(nothing[TYPE_CODE].encode(), nothing[BLOOM_FILTER].encode())
    changes = {DAYS: _before_all_days(files, table.version.column_statistics)}
    if IDS in indexes_of(lakemark.Table(table)):
        changes[IDS] = encode_filters((file, empty) for file in files)
    RowWriter(table, None).commit_schema()
    instant = max(table.store.load().completed(), key=lambda one: one.completed_at or "")
    own = FolderStorage(table.storage, METADATA_FOLDER)
    instants = TimelineStore(own, version=table.version, clock=table.store.clock)
    store = MetadataStore(own, instants, instants.load())
    store.commit(instant, changes, lambda: None)


def _before_all_days(files: Sequence[DataFile], version: str) -> RecordChanges:
    """Encode statistics of a day before all others, which replace those of the files."""
    encode = statistics_encoder(COLUMN_STATS_TYPE, pa.string(), version, is_tight=True)
    bounds = pa.array(["0000-01-01", "0000-01-01"])
    names = [str(file.name) for file in files]
    records = [encode(name, "ts", bounds, 0, 1, NO_SIZE) for name in names]
    named = zip(files, names, strict=True)
    keys = [column_stats_key("ts", file.partition_path, name) for file, name in named]
    return RecordChanges.of(keys, pa.array(records, pa.large_binary()))
