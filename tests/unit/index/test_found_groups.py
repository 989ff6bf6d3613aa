"""Rows that were found in file groups are changed there, or not at all."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakemark.errors import CorruptData
from lakemark.index.found_groups import FoundGroups


def test_group_of_another_partition_is_no_new_group() -> None:
    found = FoundGroups({"north": pa.array(["other"])})
    with pytest.raises(CorruptData, match=r"file group other: expected .*found 'north'"):
        found.tag([], pa.array(["a"]), "north")
