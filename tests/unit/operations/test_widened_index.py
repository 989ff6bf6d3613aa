"""A secondary index of an integer column whose type is widened."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakemark.config.table_properties import TableType
from lakemark.errors import Unsupported
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.table_writer import TableWriter
from lakemark.write.file_group_write import write_file_group
from lakemark.write.partitioner import divide
from tests.table_services import new_storage
from tests.tables import SCHEMA, Row, changes, lookup_writer, make, writer

_LARGE = 2**40


def _with_type(schema: pa.Schema, kind: pa.DataType) -> pa.Schema:
    return schema.set(schema.get_field_index("v"), pa.field("v", kind))


def _commit(to: TableWriter, kind: pa.DataType, rows: list[Row]) -> None:
    made = changes(rows)
    made = made.cast(_with_type(made.schema, kind))
    context = to.begin()
    placed = to.assigner.assign(context, made)
    written = [
        write_file_group(context, placed.assignment.task(bucket), [part])
        for bucket, part in divide(made, placed.numbers)
    ]
    to.commit([stat for stats in written for stat in stats], {})


def _narrow_table(table_type: TableType) -> TableWriter:
    storage = new_storage()
    make(storage, table_type, ["record_index", "secondary_index_v"])
    to = lookup_writer(storage)
    to.evolve(_with_type(SCHEMA, pa.int32()))
    _commit(to, pa.int32(), [Row("a", 1, 7), Row("b", 1, 8)])
    return to


@pytest.mark.parametrize("table_type", TableType)
def test_index_of_an_int_remains_right_when_the_column_becomes_a_long(
    table_type: TableType,
) -> None:
    to = _narrow_table(table_type)
    to.evolve(SCHEMA)
    _commit(to, pa.int64(), [Row("b", 2, _LARGE), Row("c", 2, 7)])
    table = writer(to.table.storage).table
    assert metadata_differences(table) == []
    for value, keys in ((7, ["a", "c"]), (8, []), (_LARGE, ["b"])):
        found = table.scan(columns=["id"], where=f"v = {value}").to_table()["id"].to_pylist()
        assert sorted(found) == keys


def test_widening_to_a_float_is_refused_because_it_changes_the_text_of_each_value() -> None:
    to = _narrow_table(TableType.MERGE_ON_READ)
    to.evolve(_with_type(SCHEMA, pa.float64()))
    with pytest.raises(Unsupported, match="index of column 'v', whose type is double"):
        to.begin()
    assert not to.table.store.load().pending()
