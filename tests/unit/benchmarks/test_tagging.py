"""A lookup index finds the files of few keys with few requests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import tagging
from benchmarks.tagging import CountedStorage, Tagging, create_table, searches

FILES, ROWS = 24, 50


@pytest.mark.parametrize("in_order", [True, False])
def test_metadata_table_needs_fewer_requests_than_footers(tmp_path: Path, in_order: bool) -> None:
    storage = CountedStorage(0)
    create_table(tmp_path / "t", FILES, ROWS, in_order=in_order)
    storage.copy_from(tmp_path / "t")
    keys = tagging.ids_of(np.array([ROWS * 3 + 1, ROWS * 3 + 2]))
    found: dict[str, Tagging] = dict(searches(storage, keys))
    footers, ranges, filters = (one.trips.requests for one in found.values())
    assert footers > FILES
    assert filters < footers
    assert (ranges < footers) == in_order
    assert all(one.read_bytes > 0 for one in found.values())
