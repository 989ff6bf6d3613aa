"""lakemark and Apache Hudi cluster a table in turn, and execute each other's plans."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import lakemark
from lakemark.model.row_order import Curve, RowOrder
from lakemark.operations.cluster import pending_clusterings, schedule_clustering
from lakemark.services.clustering_plan import ClusteringPolicy
from tests.interop.oracle import Oracle
from tests.interop.test_lookup_index import SCHEMA, SEVERAL_GROUPS, Kind, Model, check, view_of

pytestmark = pytest.mark.oracle

KINDS = [
    Kind("RECORD_INDEX", "MERGE_ON_READ", 9, has_metadata=True),
    Kind("SIMPLE", "COPY_ON_WRITE", 6),
]
_PLAN_FOR_APACHE = ClusteringPolicy(order=RowOrder(("v",), Curve.LINEAR))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_both_cluster_the_table_in_turn(oracle: Oracle, tmp_path: Path, kind: Kind) -> None:
    path, model, apache = tmp_path / "orders", Model(), kind.table()
    oracle.write(path, model.upserts(range(40), 10), apache, options=SEVERAL_GROUPS)
    oracle.write(path, model.upserts(range(30, 45), 20), apache, options=SEVERAL_GROUPS)
    table = lakemark.open(path)
    newest = table.timeline.completed()[-1]

    assert len(table.cluster("v").instants) == 1
    check_sorted(path)
    check(oracle, path, model)
    since = {"hoodie.datasource.read.begin.instanttime": newest.completed_at or ""}
    assert not oracle.read(path, "incremental", since).num_rows, "rows were only rewritten"
    oracle.write(path, model.upserts(range(0, 60, 3), 30), apache, options=SEVERAL_GROUPS)
    check(oracle, path, model)

    table.refresh()
    assert schedule_clustering(table._table, _PLAN_FOR_APACHE) is not None
    options = apache.write_options()
    with oracle.settings(options):
        oracle.query(f"CALL run_clustering(path => '{path}', op => 'execute')")
    table.refresh()
    assert not table.timeline.pending()
    check_sorted(path)
    check_rows(oracle, path, model)
    table.upsert(model.upserts(range(0, 60, 7), 40))
    check_rows(oracle, path, model)

    with oracle.settings(options):
        oracle.query(f"CALL run_clustering(path => '{path}', op => 'schedule', order => 'ts,v')")
    table.refresh()
    ((planned, plan),) = pending_clusterings(table._table)
    assert RowOrder.from_params(plan.strategy_params) == RowOrder(("ts", "v"))
    assert planned.requested_at in table.cluster("v").instants
    check_rows(oracle, path, model)
    oracle.write(path, model.upserts(range(0, 80, 2), 50), apache)
    check_rows(oracle, path, model)


def check_rows(oracle: Oracle, path: Path, model: Model) -> None:
    """Check the rows that both read, by key too if there is a record index.

    After a clustering of Apache Hudi, its statistics of a partition still cover replaced files, so
    they may be wider than the stored values.
    """
    table = lakemark.open(path)
    differences = [one for one in table.metadata_differences() if not one.path.endswith("/")]
    assert differences == []
    by_key = table.scan(columns=["id"], record_keys=sorted(model.rows)).to_reader().read_all()
    assert sorted(by_key.column("id").to_pylist()) == sorted(model.rows)
    for rows in (table.snapshot(SCHEMA.names).read_all(), oracle.read(path)):
        found = [(row["id"], row["ts"], row["v"]) for row in rows.select(SCHEMA.names).to_pylist()]
        assert sorted(found) == sorted((key, *values) for key, values in model.rows.items())


def check_sorted(path: Path) -> None:
    """Check that the base files are sorted by ``v``."""
    for one in view_of(path).latest_slices():
        assert one.base is not None and not one.logs
        values = pq.read_table(path / one.base.path, columns=["v"]).column("v")
        assert values.take(pc.sort_indices(values)).equals(values)
    assert SCHEMA.names[3] == "v"
