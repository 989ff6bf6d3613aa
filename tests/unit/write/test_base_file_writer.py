from __future__ import annotations

import io
import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.codec.bloom import BloomFilter
from lakemark.config.parquet_settings import ParquetSettings
from lakemark.errors import InvalidRecords, WriteConflict
from lakemark.storage import Storage
from lakemark.write.base_file_writer import BaseFileWriter
from lakemark.write.row_groups import row_bytes
from lakemark.write.write_status import WriteStatus
from tests.depth import examples
from tests.unit.write.tables import AVRO_SCHEMA, SCHEMA, memory, records, rows_of

PATH = "r0/00000000-1cd2-4bad-9f65-85c035589ca9-0_0-0-0_20260101000000000.parquet"


def _write(
    storage: Storage, batches: Sequence[pa.Table | pa.RecordBatch], row_group_bytes: int = 500
) -> WriteStatus:
    settings = ParquetSettings(row_group_bytes=row_group_bytes)
    with BaseFileWriter(storage, PATH, SCHEMA, AVRO_SCHEMA, settings) as writer:
        for batch in batches:
            writer.write(batch)
        return writer.close()


@settings(max_examples=examples(20), deadline=None)
@given(records(), st.integers(0, 12))
def test_rows_are_written_and_bytes_do_not_depend_on_the_batches(
    batch: list[dict[str, object]], position: int
) -> None:
    rows, storage, other = rows_of(batch), memory(), memory()
    status = _write(storage, [rows])
    data = storage.read(PATH)
    assert status == WriteStatus(size_bytes=len(data), num_writes=len(batch))
    assert pq.read_table(io.BytesIO(data)).cast(SCHEMA).equals(rows)
    _write(other, [rows.slice(0, position), *rows.slice(position).to_batches()])
    assert other.read(PATH) == data


def test_footer_has_the_metadata_for_hudi_indexes() -> None:
    storage = memory()
    keys = [f"k{number}" for number in range(200)]
    _write(storage, [rows_of([{"_hoodie_record_key": key} for key in keys])])
    footer = pq.read_metadata(io.BytesIO(storage.read(PATH))).metadata
    assert footer[b"hoodie_min_record_key"] == b"k0"
    assert footer[b"hoodie_max_record_key"] == b"k99"
    assert footer[b"hoodie_bloom_filter_type_code"] == b"DYNAMIC_V0"
    assert footer[b"writer.model.name"] == b"avro"
    assert json.loads(footer[b"parquet.avro.schema"]) == AVRO_SCHEMA
    bloom = BloomFilter.parse(footer[b"org.apache.hudi.bloomfilter"].decode(), "DYNAMIC_V0", PATH)
    assert bloom.might_contain(pa.array(keys)).all()
    assert not np.any(bloom.might_contain(pa.array(["k200", "a"])))


def test_row_groups_are_bounded() -> None:
    storage = memory()
    rows = rows_of([{"_hoodie_record_key": f"k{n}", "note": "x" * (n % 90)} for n in range(500)])
    _write(storage, rows.to_batches(max_chunksize=7), row_group_bytes=5_000)
    file = pq.ParquetFile(io.BytesIO(storage.read(PATH)))
    groups = [file.read_row_group(group).cast(SCHEMA) for group in range(file.num_row_groups)]
    assert len(groups) > 5
    assert all(row_bytes(group).sum() <= 5_000 for group in groups)


def test_encoded_texts_are_written_like_plain_ones() -> None:
    texts = [None, "", "ä", "status 7", "long " * 200]
    rows = rows_of([{"_hoodie_record_key": f"k{n}", "note": texts[n % 60 % 5]} for n in range(500)])
    unused = pa.array(["", "a", "ä", "long " * 200, "status 7", "zzz"])
    notes = rows.column("note").combine_chunks()
    encoded = rows.set_column(
        rows.schema.get_field_index("note"),
        "note",
        pa.DictionaryArray.from_arrays(pc.index_in(notes, unused), unused),
    )
    storages = [memory(), memory(), memory()]
    _write(storages[0], [rows], 50_000)
    _write(storages[1], [encoded], 50_000)
    _write(storages[2], [encoded.slice(0, 77), encoded.slice(77)], 50_000)
    plain, of_encoded, of_batches = (storage.read(PATH) for storage in storages)
    assert of_batches == of_encoded
    assert pq.read_table(io.BytesIO(of_encoded)).equals(pq.read_table(io.BytesIO(plain)))
    assert pq.read_schema(io.BytesIO(of_encoded)) == pq.read_schema(io.BytesIO(plain))
    assert statistics_of(of_encoded) == statistics_of(plain), "without the texts that no row has"


def statistics_of(data: bytes) -> list[object]:
    """Return the statistics of each column chunk of a file, and its other metadata."""
    footer = pq.read_metadata(io.BytesIO(data))
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    columns = [group.column(n) for group in groups for n in range(group.num_columns)]
    found = [chunk.statistics and chunk.statistics.to_dict() for chunk in columns]
    for one in found:
        if one is not None:
            # Arrow counts them only for some ways of encoding.
            one.pop("distinct_count")
    return [footer.metadata, [group.num_rows for group in groups], found]


@pytest.mark.parametrize("key", [None, ""])
def test_record_without_key_is_refused_and_leaves_no_file(key: str | None) -> None:
    storage = memory()
    with pytest.raises(InvalidRecords):
        _write(storage, [rows_of([{"_hoodie_record_key": "a"}, {"_hoodie_record_key": key}])])
    assert storage.list_tree("") == []


def test_abandoned_file_is_removed() -> None:
    storage = memory()
    settings = ParquetSettings(row_group_bytes=50)
    with BaseFileWriter(storage, PATH, SCHEMA, AVRO_SCHEMA, settings) as writer:
        writer.write(rows_of([{"_hoodie_record_key": key} for key in "abc"]))
    assert storage.list_tree("") == []


def test_second_attempt_accepts_equal_bytes_only() -> None:
    storage, rows = memory(), rows_of([{"_hoodie_record_key": "a"}])
    assert _write(storage, [rows]) == _write(storage, [rows])
    with pytest.raises(WriteConflict, match="with different content"):
        _write(storage, [rows, rows])
    assert pq.read_table(io.BytesIO(storage.read(PATH))).num_rows == 1
