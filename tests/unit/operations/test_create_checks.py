"""``create`` refuses settings that no write would accept, and leaves nothing on storage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakemark
from lakemark.config import keys
from lakemark.config.merge_settings import merge_settings
from lakemark.config.table_properties import PROPERTIES_PATH, TableProperties
from lakemark.operations.write import RowWriter
from lakemark.storage.properties_file import read_properties
from tests.storages import SimulatedCrash
from tests.unit.operations.tables import FAST, SCHEMA, create, reopen, rows

COLUMNS = pa.schema(
    [
        ("id", pa.string()),
        ("f", pa.float64()),
        ("s", pa.struct({"x": pa.int32()})),
        ("l", pa.list_(pa.int32())),
        ("m", pa.map_(pa.string(), pa.int32())),
        ("b", pa.binary()),
        ("t", pa.string()),
    ]
)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        *(({"record_key": [name]}, f"field '{name}' of type .* cannot be") for name in "fslb"),
        *(({"partition_by": [name]}, f"field '{name}' of type .* cannot be") for name in "fs"),
        *(({"ordering": [name]}, "records cannot be ordered by a column of") for name in "slm"),
        ({"record_key": []}, "record_key is empty"),
        ({"record_key": [None]}, "record_key contains None"),
        ({"record_key": 5}, "record_key is 5; pass a list"),
        ({"ordering": ["b"]}, "ordering column 'b' is binary, and Apache Hudi 1.2.0 cannot read"),
        ({"schema": COLUMNS.append(pa.field("v", pa.list_view(pa.int32())))}, "column v has type"),
        ({"ordering": ["t"]}, "ordering column 't' is text, .* pass allow_text_ordering=True"),
        ({"record_key": ["id", "id"]}, "record_key names column 'id' twice"),
        ({"partition_by": ["zz"]}, "field 'zz' is not among the columns"),
        *(({"buckets": n}, f"bucket count {n} is not between") for n in (0, -1, 10**9)),
        *(({"buckets": n}, f"buckets is {n!r}; pass a positive") for n in (True, 2.5, "4", None)),
        ({"table_type": "mor"}, "table_type is 'mor'; choose one of .*'merge_on_read'"),
        ({"merge_mode": "foo"}, "merge_mode is 'foo'; choose one of .*'commit_time'"),
        ({"partial_update": "foo"}, "partial_update is 'foo'; choose one of .*'ignore_defaults'"),
        ({"lock_provider": "zk"}, "lock provider 'zk' is neither .* use one of storage"),
        ({"version": 7}, "version is 7; choose one of 6, 8, 9"),
        ({"version": "9"}, "version is '9'; choose one of 6, 8, 9"),
        ({"multi_writer": "x"}, "multi_writer is 'x'; pass a lakemark.MultiWriter"),
        ({"schema": None}, "schema is None; pass a pyarrow.Schema"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_wrong_setting_leaves_nothing(
    settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "orders"
    with pytest.raises(lakemark.InvalidConfig, match=message):
        lakemark.create(str(path), **{"schema": COLUMNS, "record_key": ["id"], **settings})
    assert not path.exists()


def test_settings_have_the_words_of_pipeline_files(tmp_path: Path) -> None:
    table = lakemark.create(
        tmp_path / "orders",
        schema=COLUMNS,
        record_key="id",
        ordering="t",
        allow_text_ordering=True,
        table_type="copy_on_write",
        merge_mode="event_time",
        partial_update="ignore_defaults",
    )
    properties = table._table.properties
    assert properties.table_type is lakemark.TableType.COPY_ON_WRITE
    assert properties.record_key_fields == ("id",)
    assert properties.ordering_fields == ("t",)
    settings = merge_settings(properties)
    assert settings.mode is lakemark.MergeMode.EVENT_TIME
    assert settings.partial_update is lakemark.PartialUpdateMode.IGNORE_DEFAULTS


def _forget_index(path: str) -> None:
    """Remove the index from the properties, as if an earlier release had created the table."""
    storage = reopen(path)._table.storage
    stored = read_properties(storage).values
    kept = {key: value for key, value in stored.items() if key not in keys.INDEX_OF_CREATION}
    storage.put(PROPERTIES_PATH, TableProperties(kept).to_bytes())


@pytest.mark.parametrize("version", [6, 8, 9])
def test_second_creator_with_other_buckets_is_refused(
    version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, original = str(tmp_path / "orders"), RowWriter.commit_schema

    def first_creator_is_faster(second: RowWriter) -> object:
        monkeypatch.setattr(RowWriter, "commit_schema", original)
        _forget_index(path)
        table = reopen(path)
        RowWriter(table._table, 3).commit_schema()
        table.upsert(rows(("a", "north", 1, 1)))
        return original(second)

    monkeypatch.setattr(RowWriter, "commit_schema", first_creator_is_faster)
    with pytest.raises(
        lakemark.InvalidConfig, match="uses 3 as the number of buckets, but this writer uses 8"
    ):
        create(path, version=version, buckets=8)
    table = reopen(path)
    assert not table.timeline.pending()
    table.upsert(rows(("a", "north", 2, 2)))
    assert table.snapshot(SCHEMA.names).read_all().num_rows == 1
    assert lakemark.open(path, buckets=3, multi_writer=FAST).upsert(rows(("b", "x", 1, 1))).files


@pytest.mark.parametrize(
    ("index", "recorded"),
    [
        ({"buckets": 7}, {keys.BUCKET_COUNT: "7"}),
        ({"index": "lookup"}, {keys.INDEX: keys.LOOKUP}),
        (
            {"index": "consistent_hashing", "buckets": 2},
            {keys.INDEX: keys.CONSISTENT_HASHING, keys.FIRST_BUCKETS: "2"},
        ),
    ],
    ids=["bucket", "lookup", "consistent_hashing"],
)
def test_index_survives_a_creator_that_dies_before_the_first_commit(
    index: dict[str, Any],
    recorded: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = str(tmp_path / "orders")

    def die(writer: RowWriter) -> None:
        raise SimulatedCrash

    with monkeypatch.context() as patch, pytest.raises(SimulatedCrash):
        patch.setattr(RowWriter, "commit_schema", die)
        lakemark.create(path, schema=SCHEMA, record_key="id", partition_by="region", **index)
    reopen(path).upsert(rows(("a", "north", 1, 1)))
    table = reopen(path)._table
    extra = table.store.read_commit(table.timeline.completed()[-1]).extra_metadata
    assert {key: extra[key] for key in recorded} == recorded
    assert len(extra.keys() & {keys.BUCKET_COUNT, keys.INDEX}) == 1
