"""After any history of commits and compactions, queries return the rows of the model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.config.table_properties import TableType
from lakemark.model.meta_columns import COMMIT_TIME
from tests.depth import examples
from tests.merging.histories import changes, histories
from tests.merging.modes import MODES, Mode
from tests.merging.rules import Record
from tests.merging.slice_model import SliceModel
from tests.merging.written_table import WrittenTable

each_mode = pytest.mark.parametrize("mode", MODES.values(), ids=MODES)


@each_mode
@pytest.mark.parametrize("table_type", TableType)
@settings(deadline=None, max_examples=examples(3))
@given(data=st.data())
def test_query_returns_the_rows_of_the_model(
    mode: Mode, table_type: TableType, data: st.DataObject
) -> None:
    model = SliceModel(mode.rule, table_type is TableType.MERGE_ON_READ)
    with TemporaryDirectory() as folder:
        table = WrittenTable.create(Path(folder), mode.schema, mode.table_properties(table_type))
        for step in data.draw(histories(mode)):
            if step is None:
                table.compact()
                model.compact()
            else:
                model.commit(step, table.commit(changes(mode, step)).time)
            assert seen(table, mode) == expected(model.rows(), mode)


def seen(table: WrittenTable, mode: Mode) -> list[dict[str, object]]:
    return table.rows([COMMIT_TIME, *mode.schema.names])


def expected(rows: Mapping[str, Record], mode: Mode) -> list[dict[str, object]]:
    return [
        {COMMIT_TIME: rows[key].values[COMMIT_TIME], **mode.row(rows[key])} for key in sorted(rows)
    ]
