"""A partition whose metafile was deleted gets no second file group in a bucket."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakemark.config.table_properties import TableType
from lakemark.errors import Refused
from lakemark.view.file_lister import PARTITION_METAFILE
from tests.protocol.virtual_time import VirtualTime, on_virtual_time
from tests.tables import Row, commit, data_files
from tests.unit.transaction.shared_table import Table


@pytest.fixture
def clock() -> Iterator[VirtualTime]:
    with on_virtual_time() as virtual:
        yield virtual


@pytest.mark.parametrize("table_type", TableType)
def test_write_to_a_partition_without_its_metafile_is_refused(
    clock: VirtualTime, table_type: TableType
) -> None:
    table = Table(clock, table_type)
    commit(table.open(), [Row("s", 1, 1, region="south")])
    before = data_files(table.storage)
    metafile = f"south/{PARTITION_METAFILE}"
    content = table.storage.read(metafile)
    table.storage.delete([metafile])
    to = table.open()
    with pytest.raises(Refused, match=f"'south'.*{PARTITION_METAFILE} is missing"):
        commit(to, [Row("s", 2, 2, region="south")])
    to.abandon()
    assert data_files(table.storage) == before
    table.storage.put(metafile, content)
    commit(table.open(), [Row("s", 3, 3, region="south"), Row("w", 1, 1, region="west")])
    assert table.rows() == {"a": 1, "s": 3, "w": 1}
