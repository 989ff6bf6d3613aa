"""Whatever happens to a byte of Apache's files, a query answers or says what is wrong."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakemark.errors import CorruptData, HudiError
from tests.depth import examples
from tests.golden.golden_table import GoldenTable, Row, sorted_rows, unpack
from tests.unit.log.blocks import mutations

TABLES = ["v6_mor_avro_bucket", "v8_mor_parquet_bucket", "v9_mor_partial_update_payload"]


@pytest.fixture(scope="module", params=TABLES)
def golden(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> GoldenTable:
    return unpack(request.param, tmp_path_factory.mktemp("golden"))


@settings(
    deadline=None,
    max_examples=examples(25),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused(golden: GoldenTable, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(_data_files(golden)))
    whole = path.read_bytes()
    path.write_bytes(data.draw(mutations(whole)))
    try:
        golden.table.scan().to_reader().read_all()
    except HudiError as error:
        assert str(error)
    finally:
        path.write_bytes(whole)


@settings(
    deadline=None,
    max_examples=examples(25),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_a_flipped_bit_in_a_column_is_never_read_as_another_value(
    golden: GoldenTable, data: st.DataObject
) -> None:
    whole_rows = _rows(golden)
    path = data.draw(st.sampled_from([p for p in _data_files(golden) if p.suffix == ".parquet"]))
    whole = path.read_bytes()
    begin, size_bytes = data.draw(st.sampled_from(_column_chunks(path)))
    place, bit = begin + data.draw(st.integers(0, size_bytes - 1)), data.draw(st.integers(0, 7))
    flipped = bytes([whole[place] ^ (1 << bit)])
    path.write_bytes(whole[:place] + flipped + whole[place + 1 :])
    try:
        assert _rows(golden) == whole_rows
    except CorruptData as error:
        assert path.name in str(error)
    finally:
        path.write_bytes(whole)


def _rows(golden: GoldenTable) -> list[Row]:
    return sorted_rows(golden.table.scan().to_reader().read_all())


def _column_chunks(path: Path) -> list[tuple[int, int]]:
    """Where each column chunk begins, and its bytes."""
    footer = pq.read_metadata(path)
    groups = map(footer.row_group, range(footer.num_row_groups))
    chunks = [group.column(place) for group in groups for place in range(group.num_columns)]
    return [
        (chunk.dictionary_page_offset or chunk.data_page_offset, chunk.total_compressed_size)
        for chunk in chunks
    ]


def _data_files(golden: GoldenTable) -> list[Path]:
    slices = golden.view.latest_slices()
    bases = [one.base.path for one in slices if one.base is not None]
    return sorted(
        golden.root / path for path in [*bases, *(g.path for s in slices for g in s.logs)]
    )
