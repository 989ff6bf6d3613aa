"""The types of the partition fields of a CUSTOM key generator, which version 6 does not store."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pytest

from lakemark.config import keys
from lakemark.config.table_properties import TableProperties
from lakemark.errors import Refused
from lakemark.index.stored_rows import StoredRows
from lakemark.model.file_slice import FileGroupId, FileSlice
from lakemark.model.meta_columns import PARTITION_PATH
from lakemark.upgrade.partition_types import typed_partition_fields

DAY = date(2026, 1, 2)
DEFAULT = "__HIVE_DEFAULT_PARTITION__"


def types_of(values: list[object], paths: list[str]) -> tuple[str, ...]:
    properties = TableProperties({keys.TABLE_NAME: "t", keys.PARTITION_FIELDS: "f"})
    rows = pa.table({"f": values, PARTITION_PATH: paths})
    file_slice = FileSlice(FileGroupId("p", "g"), "20260101000000000")
    return typed_partition_fields(properties, [StoredRows(file_slice, rows)], "lake/t")


def test_folder_that_is_the_value_is_simple() -> None:
    assert types_of(["eu", "us"], ["eu", "us"]) == ("f:SIMPLE",)
    assert types_of([20260102], ["2026/01/02"]) == ("f:TIMESTAMP",)
    assert types_of([DAY], ["2026-01"]) == ("f:TIMESTAMP",)


def test_only_a_null_shows_the_type_of_a_date() -> None:
    assert types_of([DAY, None], ["2026-01-02", DEFAULT]) == ("f:SIMPLE",)
    assert types_of([DAY, None], ["2026-01-02", "1970-01-02"]) == ("f:TIMESTAMP",)
    with pytest.raises(Refused, match="'f', whose folders are dates; without a null"):
        types_of([DAY], ["2026-01-02"])
