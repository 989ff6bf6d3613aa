"""Stored rows whose key, partition or bucket a writer would compute differently are refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakemark.config import keys
from lakemark.config.table_properties import TableProperties
from lakemark.config.table_spec import TableSpec
from lakemark.errors import InvalidConfig, Unsupported
from lakemark.index.bucket import BucketIndex
from lakemark.keygen.key_generator import KeyGenerator, KeyGeneratorConfig
from lakemark.model.changes import CHANGE_KIND, CHANGE_KIND_FIELD, ChangeKind
from lakemark.model.format_version import WRITTEN
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY, with_meta_columns
from lakemark.operations.create import create_on
from lakemark.operations.open_table import OpenTable
from lakemark.operations.stored_rows import stored_rows
from lakemark.operations.table_writer import TableWriter
from lakemark.operations.write_checks import check_stored_rows
from lakemark.operations.writer_settings import WriterSettings
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.write.file_group_write import write_file_group
from tests.tables import by_bucket

AT = datetime(2026, 1, 2, 3, tzinfo=UTC)
ROWS = pa.table(
    {
        "id": pa.array([f"k{n}" for n in range(12)]),
        "n": pa.array(range(12), pa.int64()),
        "at": pa.array([AT] * 12, pa.timestamp("us", "UTC")),
        "day": pa.array(["2026-01-02", "a b", "x=y", None] * 3),
        "who": pa.array([{"id": f"p{n}"} for n in range(12)]),
    }
)


class Others(WriterSettings):
    """Settings of a writer that records no bucket count in its commits, like Apache Hudi."""

    def index_metadata(self) -> dict[str, str]:
        return {}


def table_of(record_key: Sequence[str], partition_by: Sequence[str] = ()) -> Storage:
    storage = open_storage(StorageLocation(f"memory://{uuid4().hex}/t"))
    spec = TableSpec(
        name="t", record_key=tuple(record_key), partition_by=tuple(partition_by), ordering=("n",)
    )
    create_on(storage, spec)
    return storage


def opened(storage: Storage, changed: Mapping[str, str] | None = None) -> OpenTable:
    stored = TableProperties.parse(storage.read(".hoodie/hoodie.properties"))
    properties = TableProperties({**stored.values, **(changed or {})})
    storage.put(".hoodie/hoodie.properties", properties.to_bytes())
    return OpenTable(storage, properties)


def write(
    storage: Storage,
    index: BucketIndex,
    record_keys: pa.Array | None = None,
    paths: pa.Array | None = None,
    kind: ChangeKind = ChangeKind.UPSERT,
    rows: pa.Table = ROWS,
) -> OpenTable:
    """Commit rows like another writer: with these keys and paths, or lakemark's own when None."""
    table = opened(storage)
    config = KeyGeneratorConfig.of(table.properties, "t")
    made = record_keys if record_keys is not None else KeyGenerator(config).record_keys(rows)
    placed = paths if paths is not None else KeyGenerator(config).partition_paths(rows)
    values = {
        RECORD_KEY: made,
        PARTITION_PATH: placed,
        CHANGE_KIND: pa.array([int(kind)] * rows.num_rows, pa.int8()),
        **{name: rows[name] for name in rows.column_names},
    }
    schema = with_meta_columns(rows.schema).append(CHANGE_KIND_FIELD)
    nulls = pa.nulls(rows.num_rows, pa.string())
    changes = pa.table([values.get(field.name, nulls) for field in schema], schema=schema)
    writer = TableWriter(table, rows.schema, Others(index))
    context, assignment = writer.begin(), writer.assigner.assign_file_groups()
    written = (
        write_file_group(context, assignment.task(bucket), [part])
        for bucket, part in by_bucket(changes, index)
    )
    writer.commit([stat for stats in written for stat in stats], {})
    return opened(storage)


def test_rows_written_by_lakemark_are_accepted() -> None:
    for record_key, partition_by in [
        (["id"], ["day"]),
        (["id", "n"], ["day", "n"]),
        (["at"], []),
        (["who.id"], ["day"]),
        (["id"], ["who.id"]),
    ]:
        index = BucketIndex(3, tuple(record_key))
        table = write(table_of(record_key, partition_by), index)
        assert not check_stored_rows(table, index).config.bare_lone_key


def test_other_hash_fields_are_refused() -> None:
    ours, others = (BucketIndex(4, ("id", "n"), hashed) for hashed in ((), ("n",)))
    table = write(table_of(["id", "n"], ["day"]), others)
    check_stored_rows(table, others)
    with pytest.raises(InvalidConfig, match=r"record 'id:k\d+,n:\d+' in bucket .*hash\.field"):
        check_stored_rows(table, ours)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({keys.HIVE_STYLE_PARTITIONING: "true"}, r"path '2026.* give it 'day=2026-01-02'"),
        ({keys.URL_ENCODE_PARTITIONING: "true"}, r"path 'x=y', .* give it 'x%3Dy'"),
        ({keys.PARTITION_FIELDS: "id"}, r"path '.*', .* give it 'k"),
    ],
)
def test_other_partition_paths_are_refused(changed: dict[str, str], message: str) -> None:
    index = BucketIndex(1, ("id",))
    storage = table_of(["id"], ["day"])
    write(storage, index)
    with pytest.raises(InvalidConfig, match=message):
        check_stored_rows(opened(storage, changed), index)


def test_another_folder_for_null_is_refused() -> None:
    index = BucketIndex(1, ("id",))
    paths = pa.array([day or "default" for day in ROWS["day"].to_pylist()])
    table = write(table_of(["id"], ["day"]), index, paths=paths)
    with pytest.raises(InvalidConfig, match=r"'default', .* '__HIVE_DEFAULT_PARTITION__'"):
        check_stored_rows(table, index)


def test_sample_includes_a_partition_of_rare_form() -> None:
    index = BucketIndex(1, ("id",))
    days = pa.array([f"2026-01-{n:02d}" for n in range(1, 31)] + [None])
    rows = pa.table({"id": pa.array([f"k{n}" for n in range(31)]), "n": range(31), "day": days})
    paths = pa.array([day or "default" for day in days.to_pylist()])
    table = write(table_of(["id"], ["day"]), index, paths=paths, rows=rows)
    assert len({one.file_slice.group for one in stored_rows(table)}) == 8
    with pytest.raises(InvalidConfig, match="'default'"):
        check_stored_rows(table, index)


def test_sample_includes_a_partition_with_another_bucket_count() -> None:
    storage, index = table_of(["id"], ["day"]), BucketIndex(4, ("id",))
    names, days = pa.array([f"k{n}" for n in range(600)]), [f"d{n % 20:02d}" for n in range(600)]
    rows = pa.table({"id": names, "n": pa.array(range(600), pa.int64()), "day": pa.array(days)})
    is_other = pc.equal(rows["day"], "d13")
    write(storage, BucketIndex(3, ("id",)), rows=rows.filter(is_other))
    table = write(storage, index, rows=rows.filter(pc.invert(is_other)))
    with pytest.raises(InvalidConfig, match=r"partition\.expressions"):
        check_stored_rows(table, index)


def test_slash_separated_dates_are_refused() -> None:
    index = BucketIndex(1, ("id",))
    rows = ROWS.set_column(3, "day", pa.array(["2026-01-02"] * 12))
    paths = pa.array(["2026/01/02"] * 12)
    table = write(table_of(["id"], ["day"]), index, paths=paths, rows=rows)
    with pytest.raises(InvalidConfig, match=r"'2026/01/02', .* give it '2026-01-02'"):
        check_stored_rows(table, index)


def test_a_path_that_the_pipeline_rejects_is_refused_by_name() -> None:
    index = BucketIndex(1, ("id",))
    rows = ROWS.set_column(3, "day", pa.array(["2026/01/02"] * 12))
    table = write(table_of(["id"], ["day"]), index, paths=rows["day"].combine_chunks(), rows=rows)
    with pytest.raises(InvalidConfig, match=r"'2026/01/02', .* would reject it; .* a slash"):
        check_stored_rows(table, index)


def test_times_rendered_as_text_in_a_key_are_refused() -> None:
    index = BucketIndex(1, ("at", "id"))
    made = pa.array([f"at:2026-01-02 03:00:00.0,id:k{n}" for n in range(12)])
    table = write(table_of(["at", "id"]), index, record_keys=made)
    with pytest.raises(InvalidConfig, match=r"give it 'at:\d{16},id:k0'; .*logical\.timestamp"):
        check_stored_rows(table, index)


def test_times_rendered_as_text_in_a_path_are_refused() -> None:
    index = BucketIndex(1, ("id",))
    table = write(table_of(["id"], ["at"]), index, paths=pa.array(["2026-01-02"] * 12))
    with pytest.raises(InvalidConfig, match=r"'2026-01-02', .* give it '\d{16}'"):
        check_stored_rows(table, index)


@pytest.mark.parametrize("in_log", [False, True])
def test_different_key_is_detected_in_base_file_and_newest_log(in_log: bool) -> None:
    index, storage = BucketIndex(1, ("id",)), table_of(["id"], ["day"])
    if in_log:
        write(storage, index)
    table = write(storage, index, record_keys=pa.array([f"id:k{n}" for n in range(12)]))
    with pytest.raises(InvalidConfig, match=r"record 'id:k0' .* would give it 'k0'"):
        check_stored_rows(table, index)


def complex_table() -> Storage:
    storage = table_of(["id"], ["day"])
    opened(storage, {keys.KEY_GENERATOR_TYPE: "COMPLEX"})
    return storage


@pytest.mark.parametrize("is_bare", [False, True])
def test_single_complex_key_uses_the_encoding_of_the_rows(is_bare: bool) -> None:
    index = BucketIndex(2, ("id",))
    stored = pa.array([f"{'' if is_bare else 'id:'}k{n}" for n in range(12)])
    table = write(complex_table(), index, record_keys=stored)
    assert check_stored_rows(table, index).record_keys(ROWS) == stored


def test_single_complex_key_of_an_empty_table_uses_the_default_encoding() -> None:
    for version in WRITTEN:
        table = opened(complex_table(), {keys.TABLE_VERSION: str(int(version))})
        keys_of = check_stored_rows(table, BucketIndex(2, ("id",)))
        assert keys_of.record_keys(ROWS)[0].as_py() == "id:k0"


def test_single_complex_keys_of_both_encodings_are_refused() -> None:
    index, storage = BucketIndex(1, ("id",)), complex_table()
    write(storage, index, record_keys=ROWS["id"].combine_chunks())
    table = write(storage, index)
    with pytest.raises(InvalidConfig, match=r"record keys in two encodings.*'id:k0'"):
        check_stored_rows(table, index)


def test_deletes_without_data_are_not_checked() -> None:
    index, storage = BucketIndex(1, ("id",)), table_of(["id"], ["day"])
    write(storage, index)
    for kind in (ChangeKind.FLAGGED_DELETE, ChangeKind.DELETE):
        empty = pa.table({f.name: pa.nulls(12, f.type) for f in ROWS.schema}).select(
            ROWS.column_names
        )
        empty = empty.set_column(1, "n", ROWS["n"]).set_column(0, "id", pa.nulls(12, pa.string()))
        paths = KeyGenerator(KeyGeneratorConfig(("id",), ("day",))).partition_paths(ROWS)
        table = write(storage, index, ROWS["id"].combine_chunks(), paths, kind, empty)
        check_stored_rows(table, index)


def test_rows_without_the_partition_column_are_refused() -> None:
    index, storage = BucketIndex(1, ("id",)), table_of(["id"], ["day"])
    write(storage, index, rows=ROWS)
    table = opened(storage, {keys.PARTITION_FIELDS: "dropped"})
    with pytest.raises(Unsupported, match="lack dropped"):
        check_stored_rows(table, index)
