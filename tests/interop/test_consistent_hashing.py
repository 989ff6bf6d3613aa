"""lakemark and Apache Hudi continue each other's tables with consistent hashing.

Apache Hudi splits buckets in between. No key is stored twice, because both find the same bucket.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import lakemark
from tests.golden.make.options import CONSISTENT_HASHING
from tests.interop.oracle import ApacheTable, Oracle
from tests.interop.test_lookup_index import Model, check, view_of

pytestmark = pytest.mark.oracle

APACHE = ApacheTable(
    "orders",
    ["id"],
    ["region"],
    ["ts"],
    extra=CONSISTENT_HASHING,
)
_SPLIT = {"hoodie.clustering.inline": "true", "hoodie.clustering.inline.max.commits": "1"}


def test_both_continue_the_table_while_buckets_are_split(oracle: Oracle, tmp_path: Path) -> None:
    path, model = tmp_path / "orders", Model()
    oracle.write(path, model.upserts(range(40), 10), APACHE)
    lakemark.open(path).upsert(model.upserts([*range(20, 60)], 20))
    check(oracle, path, model)
    before = len(view_of(path).file_groups())
    oracle.write(path, model.upserts(range(30, 50), 30), APACHE, options=_SPLIT)
    assert len({one.group for one in view_of(path).latest_slices()}) > before
    check(oracle, path, model)
    table = lakemark.open(path)
    table.upsert(model.upserts([*range(0, 80, 3)], 40))
    table.delete(model.deletes([0, 1, 2, 75]))
    check(oracle, path, model)
    oracle.write(path, model.upserts(range(0, 90, 2), 50), APACHE)
    check(oracle, path, model)
    table.refresh()
    table.compact()
    table.upsert(model.upserts([*range(85, 95)], 60))
    check(oracle, path, model)


def test_apache_hudi_continues_a_partition_that_lakemark_began(
    oracle: Oracle, tmp_path: Path
) -> None:
    path, model = tmp_path / "orders", Model()
    oracle.write(path, model.upserts(range(0, 40, 2), 10), APACHE)  # the region north
    lakemark.open(path).upsert(model.upserts(range(1, 40, 2), 20))  # the region south
    oracle.write(path, model.upserts(range(20, 60), 30), APACHE)
    check(oracle, path, model)
