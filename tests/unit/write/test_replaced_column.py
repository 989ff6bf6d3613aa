"""A copy with another value in a column has the bytes of a file that was written with the value."""

from __future__ import annotations

import io
import itertools

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.config.parquet_settings import Compression, ParquetSettings
from lakemark.log.parquet_format import column_sizes, parquet_writer
from lakemark.write.replaced_column import replace_column

SCHEMA = pa.schema(
    [
        ("time", pa.string()),
        ("name", pa.string()),
        ("price", pa.float64()),  # has no statistics, so no column index
        ("parts", pa.list_(pa.struct([("n", pa.int32()), ("text", pa.string())]))),
        ("id", pa.int64()),
    ]
)


def written(counts: list[int], value: str, chosen: ParquetSettings, schema: pa.Schema) -> bytes:
    sink = io.BytesIO()
    with parquet_writer(sink, schema, chosen, has_page_index=True) as writer:
        for start, count in zip(itertools.accumulate(counts, initial=0), counts, strict=False):
            writer.write_table(_rows(start, count, value, schema), row_group_size=count)
        writer.writer.add_key_value_metadata({"key": "value" * 100})
    return sink.getvalue()


def _rows(start: int, count: int, value: str, schema: pa.Schema) -> pa.Table:
    ids = np.arange(start, start + count)
    columns = {
        "time": pa.array(ids % 3).cast(pa.string()),
        "name": pa.repeat(pa.scalar(value), count),
        "price": pa.array(np.sqrt(ids)),
        "parts": pa.array([[{"n": n, "text": f"t{n}"}] * (n % 3) for n in ids.tolist()]),
        "id": pa.array(ids),
    }
    return pa.table([columns[f.name].cast(f.type) for f in schema], schema=schema)


_names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=200)


@given(
    st.lists(st.integers(1, 3000), min_size=1, max_size=5),
    st.tuples(_names, _names),
    st.sampled_from(list(Compression)),
    st.sampled_from([100, 10_000, 1 << 20]),
    st.booleans(),
    st.permutations(SCHEMA.names),
)
@settings(deadline=None)
def test_a_copy_has_the_bytes_of_a_file_with_the_new_value(
    counts: list[int],
    names: tuple[str, str],
    compression: Compression,
    page_bytes: int,
    dictionary: bool,
    order: list[str],
) -> None:
    before, after = names
    chosen = ParquetSettings(compression=compression, page_bytes=page_bytes, dictionary=dictionary)
    schema = pa.schema([SCHEMA.field(name) for name in order])
    source, copy = io.BytesIO(written(counts, before, chosen, schema)), io.BytesIO()
    size = replace_column(source, copy.write, schema.field("name"), after, chosen)
    assert copy.getvalue() == written(counts, after, chosen, schema)
    assert size == column_sizes(pq.read_metadata(copy))["name"]


@pytest.mark.parametrize("count", [100_000])
def test_a_copy_of_many_pages_is_read_with_its_page_index(count: int) -> None:
    chosen = ParquetSettings(page_bytes=1000)
    source, copy = io.BytesIO(written([count], "before", chosen, SCHEMA)), io.BytesIO()
    replace_column(source, copy.write, SCHEMA.field("name"), "after", chosen)
    read = pq.ParquetFile(copy, page_checksum_verification=True).read()
    assert read.equals(_rows(0, count, "after", SCHEMA))
