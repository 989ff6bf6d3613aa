"""An erasure removes every stored copy of some records, and finds copies that it cannot remove."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakemark
from lakemark.codec.hfile.reader import HFileReader
from lakemark.execution.runner import LocalRunner
from lakemark.model.commit_metadata import Operation
from lakemark.operations.compact import request_compaction
from lakemark.operations.key_traces import Place, find_traces
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from lakemark.storage.open_storage import open_storage
from tests.depth import examples
from tests.golden.golden_table import unpack
from tests.unit.operations.tables import FAST, contents, create, reopen, rows

KEYS = [f"customer-{number:03}" for number in range(12)]
ERASED = [KEYS[3], KEYS[8]]
REGIONS = ("north", "south")


def upserted(numbers: range | list[int], ts: int) -> pa.Table:
    return rows(*((KEYS[n], REGIONS[n % 2], ts, n) for n in numbers))


def indexed_table(path: Path, table_type: str) -> lakemark.Table:
    """Create a table whose keys are in old slices, logs, both indexes and statistics."""
    table = lakemark.create(
        path,
        schema=upserted([], 0).schema,
        record_key="id",
        partition_by="region",
        ordering="ts",
        table_type=table_type,
        index="lookup",
        multi_writer=FAST,
    )
    table.upsert(upserted(range(12), 1))
    table.create_index("record_index")
    table.create_index("by_region", column="region")
    table.upsert(upserted(range(10), 2))
    return table


def files_with(path: Path, text: str) -> list[str]:
    """Return the files that contain a text, by a search that shares no code with lakemark's."""
    return [
        str(file.relative_to(path))
        for file in sorted(path.rglob("*"))
        if file.is_file() and text in readable(file)
    ]


def readable(file: Path) -> str:
    if file.suffix == ".parquet":
        return str(pq.read_table(file).to_pylist()) + str(pq.read_metadata(file).metadata)
    if file.suffix == ".hfile":
        with file.open("rb") as opened:
            reader = HFileReader(opened, file.stat().st_size, str(file))
            return str([(keys.to_pylist(), values.to_pylist()) for keys, values in reader.scan()])
    return file.read_bytes().decode("latin-1")


@pytest.mark.parametrize("table_type", ["merge_on_read", "copy_on_write"])
def test_no_file_contains_an_erased_record(tmp_path: Path, table_type: str) -> None:
    path = tmp_path / "orders"
    table = indexed_table(path, table_type)
    planned = table.erase(ERASED, dry_run=True)
    places = {trace.place for trace in planned.traces}
    expected = {Place.BASE_FILE, Place.METADATA_TABLE}
    assert places == (expected | {Place.LOG_FILE} if table_type == "merge_on_read" else expected)
    assert set(files_with(path, ERASED[0])) <= {trace.path for trace in planned.traces}
    assert len(contents(table)) == 12

    erasure = table.erase(ERASED)
    assert erasure.is_complete
    assert (erasure.keys, erasure.deleted) == (2, 2)
    assert not files_with(path, ERASED[0])
    assert not files_with(path, ERASED[1])
    assert contents(table).keys() == {*KEYS} - {*ERASED}
    assert not table.metadata_differences()
    assert {index.partition for index in reopen(str(path)).indexes} >= {"record_index"}


def test_queries_cannot_travel_to_the_time_before_an_erasure(tmp_path: Path) -> None:
    """They would silently miss rows of other keys, whose older files were cleaned."""
    table = create(str(tmp_path / "orders"), "COPY_ON_WRITE")
    before = table.upsert(upserted(range(12), 1)).instant
    table.erase(ERASED)
    after = table.upsert(upserted([1], 2)).instant
    for one in (table, reopen(table.location)):
        with pytest.raises(lakemark.InvalidConfig, match="earliest readable instant"):
            one.scan(lakemark.Snapshot(before))
        assert one.scan(lakemark.Snapshot(after)).to_table().num_rows == 10


def test_no_later_clean_lets_queries_travel_to_the_time_before_an_erasure(tmp_path: Path) -> None:
    table = create(str(tmp_path / "orders"), "COPY_ON_WRITE")
    before = table.upsert(upserted(range(12), 1)).instant
    table.upsert(upserted(range(12), 2))
    kept = table.upsert(upserted([0, 1], 3)).instant
    table.erase(ERASED)
    for ts in (4, 5, 6):
        table.upsert(upserted([1], ts))
    for number, retained in enumerate(({"retain_versions": 1}, {"retain_commits": 5})):
        table.upsert(upserted([1], 7 + number))
        table.clean(**retained)
        for instant in (before, kept):
            with pytest.raises(lakemark.InvalidConfig, match="earliest readable instant"):
                reopen(table.location).scan(lakemark.Snapshot(instant))


def test_a_write_that_was_pending_does_not_let_queries_travel_further_back(tmp_path: Path) -> None:
    """The next clean must search from this write on, but queries must not start there."""
    table = create(str(tmp_path / "orders"), "COPY_ON_WRITE")
    table.upsert(upserted(range(12), 1))
    other = reopen(table.location)
    other.upsert(upserted([0], 2))
    other._rows._attempts.recover()
    other._rows._writer.begin(Operation.UPSERT)
    between = table.upsert(upserted(range(1, 12), 3)).instant
    table.erase(ERASED)
    other._rows._writer.cancel()
    newest = table.upsert(upserted([1], 4)).instant
    for one in (table, reopen(table.location)):
        with pytest.raises(lakemark.InvalidConfig, match="earliest readable instant"):
            one.scan(lakemark.Snapshot(between))
        assert one.scan(lakemark.Snapshot(newest)).to_table().num_rows == 10


@pytest.mark.parametrize("version", [6, 9])
def test_logs_that_a_pending_compaction_does_not_read_are_compacted_too(
    tmp_path: Path, version: int
) -> None:
    """The deletion is in a slice that the pending compaction began."""
    path = tmp_path / "orders"
    table = create(str(path), version=version)
    table.upsert(upserted(range(12), 1))
    table.upsert(upserted(range(12), 2))
    assert request_compaction(open_table(StorageLocation(str(path))))
    assert table.erase(ERASED).is_complete
    assert contents(table).keys() == {*KEYS} - {*ERASED}
    assert not files_with(path, ERASED[0])


def test_a_key_without_a_row_is_erased_from_older_files(tmp_path: Path) -> None:
    path = tmp_path / "orders"
    table = create(str(path))
    table.upsert(upserted(range(12), 1))
    table.delete(ERASED)
    table.compact()
    assert files_with(path, ERASED[0])
    erasure = table.erase(ERASED)
    assert (erasure.is_complete, erasure.deleted) == (True, 0)
    assert not files_with(path, ERASED[0])
    assert table.erase(ERASED).instants == (), "nothing is left to do"


def test_a_condition_selects_the_keys_of_current_rows(tmp_path: Path) -> None:
    path = tmp_path / "orders"
    table = create(str(path))
    table.upsert(upserted(range(12), 1))
    table.upsert(upserted([4], 2))
    erasure = table.erase(where="v = 4 or v = 5")
    assert (erasure.keys, erasure.is_complete) == (2, True)
    assert contents(table).keys() == {*KEYS} - {KEYS[4], KEYS[5]}
    with pytest.raises(lakemark.InvalidConfig, match="keys=… or where=…"):
        table.erase()


def test_a_savepoint_that_keeps_a_record_is_named_before_anything_changes(tmp_path: Path) -> None:
    table = create(str(tmp_path / "orders"))
    table.upsert(upserted(range(12), 1))
    kept = table.savepoint()
    with pytest.raises(lakemark.Refused, match=f"savepoint of {kept} .* delete the savepoint"):
        table.erase(ERASED)
    assert contents(table).keys() == {*KEYS}
    table.delete_savepoint(kept)
    assert table.erase(ERASED).is_complete


def test_a_file_outside_of_the_table_is_reported(tmp_path: Path) -> None:
    """No service may delete a file that no commit has written."""
    path = tmp_path / "orders"
    table = create(str(path))
    table.upsert(upserted(range(12), 1))
    stored = next(
        file
        for file in sorted(path.glob("north/*.parquet"))
        if KEYS[8] in pq.read_table(file)["id"].to_pylist()
    )
    foreign = {
        "south/copy.parquet": stored.read_bytes(),
        ".hoodie/note.json": json.dumps({"deleted": KEYS[3]}).encode(),
        "south/torn.parquet": b"PAR1",
        "south/damaged.parquet": damaged(stored),
        "south/copy.csv.gz": gzip.compress(KEYS[3].encode()),
    }
    for name, content in foreign.items():
        (path / name).write_bytes(content)
    pq.write_table(pa.table({"id": KEYS}), path / "south" / "export.parquet")
    erasure = table.erase(ERASED)
    assert not erasure.is_complete
    left = {trace.path: trace.keys for trace in erasure.traces}
    assert left == {
        "south/copy.parquet": 1,
        ".hoodie/note.json": 1,
        "south/torn.parquet": 0,
        "south/damaged.parquet": 0,
        "south/copy.csv.gz": 0,
        "south/export.parquet": 2,
    }


def damaged(file: Path) -> bytes:
    content = bytearray(file.read_bytes())
    content[4 : len(content) // 2] = bytes(len(content) // 2 - 4)
    return bytes(content)


def test_archives_of_version_6_are_searched(tmp_path: Path) -> None:
    """They are logs whose rows have no record keys."""
    table = unpack("v6_mor_archived", tmp_path).table
    search = find_traces(table.storage, ["deltacommit"], LocalRunner(1))
    assert any(".archive." in trace.path and trace.keys for trace in search.traces)


def test_many_keys_with_the_same_start_are_searched_in_texts_about_as_fast_as_one(
    tmp_path: Path,
) -> None:
    keys = [f"customer-{number:06}" for number in range(30_000)]
    path = tmp_path / "notes"
    path.mkdir()
    (path / "other.json").write_text(json.dumps([f"customer-x{n}" for n in range(2_000)]))
    (path / "last.json").write_text(json.dumps({"deleted": [keys[-1]]}))
    started = time.process_time()
    search = find_traces(open_storage(StorageLocation(str(path))), keys, LocalRunner(1))
    assert [(trace.path, trace.keys) for trace in search.traces] == [("last.json", 1)]
    assert time.process_time() - started < 5, "seconds; each text was compared with each key"


def test_the_change_data_of_the_deletion_stays_until_the_file_group_is_rewritten(
    tmp_path: Path,
) -> None:
    path = tmp_path / "orders"
    table = lakemark.create(
        path,
        schema=upserted([], 0).schema,
        record_key="id",
        partition_by="region",
        ordering="ts",
        table_type="copy_on_write",
        buckets=1,
        cdc="data_before_after",
        multi_writer=FAST,
    )
    table.upsert(upserted(range(12), 1))
    table.upsert(upserted(range(12), 2))
    erasure = table.erase(ERASED)
    logs = [*files_with(path, ERASED[1]), *files_with(path, ERASED[0])]
    assert [trace.path for trace in erasure.traces] == logs
    assert [name.endswith(".cdc") for name in logs] == [True, True]
    table.upsert(upserted([1, 2], 3))
    assert table.erase(ERASED).is_complete
    assert not files_with(path, ERASED[0])


@pytest.mark.parametrize("mode", ["data_before_after", "data_before", "op_key_only"])
@pytest.mark.parametrize("fields", [["id"], ["id", "part"], []], ids=["number", "two", "automatic"])
def test_change_data_of_a_record_is_found_although_its_key_is_no_text_of_it(
    tmp_path: Path, fields: list[str], mode: str
) -> None:
    """Such a log may have no record key, and the columns of the key are numbers, or several."""
    path = tmp_path / "people"
    schema = pa.schema({"id": pa.int64(), "part": pa.int32(), "name": pa.string()})
    people = [{"id": n, "part": 1, "name": f"person {n}"} for n in range(3)]
    table = lakemark.create(
        path,
        schema=schema,
        record_key=fields,
        table_type="copy_on_write",
        index="bucket" if fields else "lookup",
        buckets=1 if fields else 4,
        cdc=mode,
        multi_writer=FAST,
    )
    table.insert(pa.Table.from_pylist(people, schema=schema))
    found = table.snapshot(["_hoodie_record_key", "id"]).read_all().to_pylist()
    key = next(row["_hoodie_record_key"] for row in found if row["id"] == 2)
    erasure = table.erase([key])
    logs = [str(file.relative_to(path)) for file in path.rglob("*.cdc")]
    assert len(logs) == 1
    assert [trace.path for trace in erasure.traces] == logs
    rest = pa.Table.from_pylist(people[:2], schema=schema)
    if fields:
        table.upsert(rest)
        assert table.erase([key]).is_complete


@pytest.mark.parametrize("mode", ["data_before_after", "data_before", "op_key_only"])
@pytest.mark.parametrize("is_bare", [True, False], ids=["value", "field and value"])
@pytest.mark.parametrize("given", ["text", "columns"])
def test_change_data_is_found_in_the_encoding_of_keys_that_no_row_shows_any_more(
    tmp_path: Path, mode: str, is_bare: bool, given: str
) -> None:
    """Apache Hudi 0.14.1 to 1.0.2 wrote the value alone as the record key of such a table."""
    path = tmp_path / "people"
    schema = pa.schema({"id": pa.int64(), "part": pa.int32(), "name": pa.string()})
    table = lakemark.create(
        path,
        schema=schema,
        record_key="id",
        partition_by="part",
        table_type="copy_on_write",
        buckets=1,
        cdc=mode,
        version=8,
        multi_writer=FAST,
    )
    people = [{"id": n, "part": 1, "name": f"person {n}"} for n in (1_000_001, 1_000_002)]
    if not is_bare:
        make_key_complex(path)
    reopen(str(path)).insert(pa.Table.from_pylist(people, schema=schema))
    make_key_complex(path)
    table = reopen(str(path))
    columns = table.snapshot(["_hoodie_record_key", "id"]).read_all()
    stored = columns["_hoodie_record_key"].to_pylist()
    assert set(stored) == {str(one["id"]) if is_bare else f"id:{one['id']}" for one in people}

    first = table.erase(stored)
    logs = [str(file.relative_to(path)) for file in path.rglob("*.cdc")]
    assert len(logs) == 1
    assert [(trace.path, trace.keys) for trace in first.traces] == [(logs[0], 2)]
    assert reopen(str(path)).snapshot().read_all().num_rows == 0
    keys = stored[1:] if given == "text" else columns.select(["id"]).slice(1)
    erasure = reopen(str(path)).erase(keys)
    assert [(trace.path, trace.keys) for trace in erasure.traces] == [(logs[0], 1)]


def make_key_complex(path: Path) -> None:
    properties = path / ".hoodie" / "hoodie.properties"
    properties.write_text(properties.read_text().replace(".type=SIMPLE", ".type=COMPLEX"))


def test_tables_without_record_keys_in_their_rows_are_refused(tmp_path: Path) -> None:
    table = lakemark.create(
        tmp_path / "orders",
        schema=upserted([], 0).schema,
        record_key="id",
        table_type="copy_on_write",
        meta_columns=False,
    )
    table.upsert(upserted(range(3), 1))
    with pytest.raises(lakemark.Unsupported, match=r"Table\.delete"):
        table.erase([KEYS[0]])


ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("upsert"), st.sets(st.integers(0, 11), min_size=1)),
        st.tuples(st.just("delete"), st.sets(st.integers(0, 11), min_size=1)),
        st.tuples(st.sampled_from(["compact", "clean", "overwrite"]), st.just({0, 1, 2})),
    ),
    min_size=1,
    max_size=6,
)


@given(
    acts=ACTS,
    erased=st.sets(st.integers(0, 11), min_size=1, max_size=3),
    table_type=st.sampled_from(["merge_on_read", "copy_on_write"]),
)
@settings(max_examples=examples(12))
def test_after_any_history_only_the_erased_records_are_gone(
    tmp_path_factory: pytest.TempPathFactory,
    acts: list[tuple[str, set[int]]],
    erased: set[int],
    table_type: str,
) -> None:
    path = tmp_path_factory.mktemp("history") / "orders"
    table = create(str(path), table_type.upper())
    for ts, (act, numbers) in enumerate(acts, start=1):
        match act:
            case "upsert":
                table.upsert(upserted(sorted(numbers), ts))
            case "delete":
                table.delete([KEYS[n] for n in sorted(numbers)])
            case "overwrite":
                table.insert_overwrite(upserted(sorted(numbers), ts))
            case "compact" if table_type == "merge_on_read":
                table.compact()
            case _:
                table.clean(retain_commits=1)
    before, keys = contents(table), [KEYS[n] for n in sorted(erased)]
    assert table.erase(keys).is_complete
    assert contents(table) == {key: row for key, row in before.items() if key not in keys}
    assert not any(files_with(path, key) for key in keys)
