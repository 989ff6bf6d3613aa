"""Whatever happens to a byte of Apache's files, a query answers or says what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from table.errors import HudiError
from tests.golden.golden_table import GoldenTable, unpack
from tests.unit.log.blocks import mutations

TABLES = ["v6_mor_avro_bucket", "v8_mor_parquet_bucket", "v9_mor_partial_update_payload"]


@pytest.fixture(scope="module", params=TABLES)
def golden(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> GoldenTable:
    return unpack(request.param, tmp_path_factory.mktemp("golden"))


@settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused(golden: GoldenTable, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(_data_files(golden)))
    whole = path.read_bytes()
    path.write_bytes(data.draw(mutations(whole)))
    try:
        golden.table.snapshot().read_all()
    except HudiError as error:
        assert str(error)
    finally:
        path.write_bytes(whole)


def _data_files(golden: GoldenTable) -> list[Path]:
    slices = golden.view.latest_slices()
    bases = [one.base.path for one in slices if one.base is not None]
    return sorted(
        golden.root / path for path in [*bases, *(g.path for s in slices for g in s.logs)]
    )
