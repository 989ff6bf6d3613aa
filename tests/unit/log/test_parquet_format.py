"""Parquet as it is written and read."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark.log.parquet_format import open_parquet, parquet_writer

ROWS = pa.table({"id": [f"k{number}" for number in range(50)], "v": list(range(50))})


def written() -> bytes:
    sink = io.BytesIO()
    with parquet_writer(sink, ROWS.schema) as writer:
        writer.write_table(ROWS)
    return sink.getvalue()


WHOLE = written()
LAST_CHUNK = open_parquet(pa.BufferReader(WHOLE)).metadata.row_group(0).column(1)
FIRST_PAGE = LAST_CHUNK.dictionary_page_offset or LAST_CHUNK.data_page_offset
END_OF_PAGES = FIRST_PAGE + LAST_CHUNK.total_compressed_size


@given(st.integers(4, END_OF_PAGES - 1), st.integers(0, 7))
def test_a_flipped_bit_in_a_page_of_ours_is_not_read_as_another_value(
    position: int, bit: int
) -> None:
    flipped = bytes([WHOLE[position] ^ (1 << bit)])
    damaged = open_parquet(pa.BufferReader(WHOLE[:position] + flipped + WHOLE[position + 1 :]))
    try:
        rows = damaged.read()
    except (pa.ArrowException, OSError):
        return
    assert rows.equals(ROWS) or rows.num_rows < damaged.metadata.num_rows


def test_a_page_is_held_against_its_checksum() -> None:
    position = END_OF_PAGES - 1
    damaged = WHOLE[:position] + bytes([WHOLE[position] ^ 1]) + WHOLE[position + 1 :]
    with pytest.raises(OSError, match="page integrity"):
        open_parquet(pa.BufferReader(damaged)).read()
