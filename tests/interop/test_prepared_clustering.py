"""Apache Hudi reads and continues a table whose clustering was prepared while it was written."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakemark
from lakemark.execution.runner import LocalRunner
from lakemark.model.row_order import RowOrder
from lakemark.operations.group_replacement import execute_replacement
from lakemark.operations.prepared_clustering import begin_preparation
from lakemark.services.clustering_plan import ClusteringPolicy
from tests.interop.oracle import Oracle
from tests.interop.test_clustering import check_rows
from tests.interop.test_lookup_index import SEVERAL_GROUPS, Kind, Model, check

pytestmark = pytest.mark.oracle

KINDS = [
    Kind("RECORD_INDEX", "MERGE_ON_READ", 9, has_metadata=True),
    Kind("SIMPLE", "COPY_ON_WRITE", 6),
]
SORTED = ClusteringPolicy(order=RowOrder(("v",)))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_apache_hudi_continues_a_prepared_clustering(
    oracle: Oracle, tmp_path: Path, kind: Kind
) -> None:
    path, model, apache = tmp_path / "orders", Model(), kind.table()
    oracle.write(path, model.upserts(range(40), 10), apache, options=SEVERAL_GROUPS)
    oracle.write(path, model.upserts(range(30, 45), 20), apache, options=SEVERAL_GROUPS)
    table = lakemark.open(path)._table
    preparation = begin_preparation(table, SORTED)
    assert preparation is not None
    (tmp_path / "prepared").mkdir()
    prepared = preparation.run(tmp_path / "prepared")

    # Apache Hudi updates a row of one partition, whose group is then left out.
    oracle.write(path, model.upserts((0,), 30), apache, options=SEVERAL_GROUPS)
    table.refresh()
    newest = table.timeline.completed()[-1]
    request = prepared.request
    ((_, metadata),) = execute_replacement(table, lambda: request(table), LocalRunner(1))
    planned = {one.partition_path for one in preparation.groups}
    assert 0 < len(metadata.replaced_file_ids) < len(planned)
    check(oracle, path, model)
    since = {"hoodie.datasource.read.begin.instanttime": newest.completed_at or ""}
    assert not oracle.read(path, "incremental", since).num_rows, "rows were only rewritten"

    oracle.write(path, model.upserts(range(0, 60, 3), 40), apache, options=SEVERAL_GROUPS)
    check(oracle, path, model)
    with oracle.settings(apache.write_options()):
        oracle.query(f"CALL run_clustering(path => '{path}', op => 'scheduleAndExecute')")
    check_rows(oracle, path, model)
    lakemark.open(path).upsert(model.upserts(range(0, 60, 7), 50))
    check_rows(oracle, path, model)
