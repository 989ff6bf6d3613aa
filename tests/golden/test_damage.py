"""If any byte of a file is damaged, a query returns rows or raises an error that names the file."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakemark.errors import CorruptData, HudiError
from lakemark.log.log_block import BlockType
from lakemark.model.file_slice import FileSlice
from lakemark.model.meta_columns import RECORD_KEY
from tests.depth import examples
from tests.golden.golden_table import GoldenTable, Row, sorted_rows, unpack
from tests.unit.log.blocks import mutations, read_all

TABLES = ["v6_mor_avro_bucket", "v8_mor_parquet_bucket", "v9_mor_partial_update_payload"]


@pytest.fixture(scope="module", params=TABLES)
def golden(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> GoldenTable:
    return unpack(request.param, tmp_path_factory.mktemp("golden"))


@pytest.fixture(scope="module")
def whole_rows(golden: GoldenTable) -> list[Row]:
    """The rows before any file is damaged."""
    return _rows(golden)


@settings(
    deadline=None,
    max_examples=examples(25),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_damaged_file_is_named_or_only_its_file_group_is_affected(
    golden: GoldenTable, whole_rows: list[Row], data: st.DataObject
) -> None:
    """Damage to parts without a checksum (Avro, block headers, footers) may change their values."""
    file_slice = data.draw(st.sampled_from(golden.view.latest_slices()))
    own_keys = _keys_ever(golden, file_slice)
    path = data.draw(st.sampled_from(_files_of(golden, file_slice)))
    with _damaged(path, data.draw(mutations(path.read_bytes()))):
        try:
            answer = golden.table.scan().to_reader().read_all()
        except HudiError as error:
            assert path.name in str(error)
        else:
            assert answer.schema == golden.table.scan().to_reader().schema
            of_others = [row for row in whole_rows if row[RECORD_KEY] not in own_keys]
            rows = sorted_rows(answer)
            assert [row for row in rows if row in of_others] == of_others
            own = [row[RECORD_KEY] for row in rows if row not in of_others]
            assert len(set(own)) == len(own), "a key occurs twice"


@settings(
    deadline=None,
    max_examples=examples(25),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_base_file_with_damaged_columns_is_read_correctly_or_named(
    golden: GoldenTable, whole_rows: list[Row], data: st.DataObject
) -> None:
    path = data.draw(st.sampled_from([p for p in _data_files(golden) if p.suffix == ".parquet"]))
    whole = path.read_bytes()
    begin, size_bytes = data.draw(st.sampled_from(_column_chunks(path)))
    end = begin + size_bytes
    changed = data.draw(mutations(whole[begin:end]))
    with _damaged(path, whole[:begin] + changed + whole[end:]):
        try:
            assert _rows(golden) == whole_rows
        except CorruptData as error:
            assert path.name in str(error)


@settings(
    deadline=None,
    max_examples=examples(25),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_flipped_bit_in_a_column_is_never_read_as_another_value(
    golden: GoldenTable, whole_rows: list[Row], data: st.DataObject
) -> None:
    path = data.draw(st.sampled_from([p for p in _data_files(golden) if _column_chunks(p)]))
    whole = path.read_bytes()
    begin, size_bytes = data.draw(st.sampled_from(_column_chunks(path)))
    place, bit = begin + data.draw(st.integers(0, size_bytes - 1)), data.draw(st.integers(0, 7))
    flipped = bytes([whole[place] ^ (1 << bit)])
    with _damaged(path, whole[:place] + flipped + whole[place + 1 :]):
        try:
            assert _rows(golden) == whole_rows
        except CorruptData as error:
            assert path.name in str(error)


@contextmanager
def _damaged(path: Path, content: bytes) -> Iterator[None]:
    whole = path.read_bytes()
    path.write_bytes(content)
    try:
        yield
    finally:
        path.write_bytes(whole)


def _rows(golden: GoldenTable) -> list[Row]:
    return sorted_rows(golden.table.scan().to_reader().read_all())


def _column_chunks(path: Path) -> list[tuple[int, int]]:
    """Find the offset and the bytes of each Parquet column chunk, also inside log blocks."""
    if path.suffix == ".parquet":
        return _chunks_of(path.read_bytes(), 0)
    blocks = read_all(path.read_bytes(), path.name)
    contents = (b.content for b in blocks if b.type is BlockType.PARQUET_DATA)
    return [chunk for one in contents for chunk in _chunks_of(one.read(), one.offset)]


def _chunks_of(content: bytes, offset: int) -> list[tuple[int, int]]:
    footer = pq.read_metadata(io.BytesIO(content))
    groups = map(footer.row_group, range(footer.num_row_groups))
    chunks = [group.column(place) for group in groups for place in range(group.num_columns)]
    return [
        (
            offset + (chunk.dictionary_page_offset or chunk.data_page_offset),
            chunk.total_compressed_size,
        )
        for chunk in chunks
    ]


def _keys_ever(golden: GoldenTable, file_slice: FileSlice) -> set[str]:
    """Read the keys of a file slice, deleted ones included."""
    reader = golden.table.scan().reader
    base = FileSlice(file_slice.group, file_slice.base_instant, file_slice.base)
    rows = [*reader.read(base), *reader.read_changes(file_slice)]
    return {key for part in rows for key in part[RECORD_KEY].to_pylist()}


def _files_of(golden: GoldenTable, file_slice: FileSlice) -> list[Path]:
    bases = [] if file_slice.base is None else [file_slice.base.path]
    return [golden.root / path for path in [*bases, *(log.path for log in file_slice.logs)]]


def _data_files(golden: GoldenTable) -> list[Path]:
    return sorted(path for one in golden.view.latest_slices() for path in _files_of(golden, one))
