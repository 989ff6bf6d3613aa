"""A condition on floats finds all rows, although the bounds of Parquet do not show NaN."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakemark
from lakemark.read.where import parse_where

NAN = float("nan")
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("f", pa.float64()),
        ("g", pa.float32()),
        ("s", pa.struct([("z", pa.float64())])),
    ]
)
TEXTS = [
    f"{start}{column} {comparison} {value}{end}"
    for column in ("f", "g", "s.z")
    for start, end in (("", ""), ("not (", ")"))
    for comparison in ("=", "!=", "<", ">=")
    for value in ("1.0", "0", "-1")
]
EXPRESSIONS = [
    condition
    for column, kind in (("f", pa.float64()), ("g", pa.float32()))
    for field in [pc.field(column)]
    for condition in (
        pc.is_nan(field),
        field.is_null(nan_is_null=True),
        field.isin(pa.array([NAN], kind)),
        field.isin(pa.array([0.0, 3.0], kind)),
        ~field.isin(pa.array([float("inf"), -0.0, NAN], kind)),
    )
]


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_filter_returns_the_rows_of_a_filtered_full_read(tmp_path: Path, table_type: str) -> None:
    for values in ([1.0, NAN], [0.0, -0.0], [-0.0], [NAN], [1.0, None]):
        table = lakemark.create(
            tmp_path / f"t{values}",
            schema=SCHEMA,
            record_key="id",
            name="t",
            table_type=table_type,
            buckets=1,
        )
        rows = [{"id": f"{n}", "f": one, "g": one, "s": {"z": one}} for n, one in enumerate(values)]
        table.upsert(pa.Table.from_pylist(rows, SCHEMA))
        whole = table.scan().to_table()
        for condition in (*(parse_where(text, SCHEMA) for text in TEXTS), *EXPRESSIONS):
            expected = whole.filter(condition).num_rows
            assert table.scan(where=condition).to_table().num_rows == expected, (values, condition)
