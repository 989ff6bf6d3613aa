"""A requested replace commit is a clustering only if it has a clustering plan."""

from __future__ import annotations

from lakemark.model.clustering_plan import ClusteringPlan
from lakemark.model.file_slice import FileGroupId


def test_a_clustering_names_the_groups_that_it_rewrites() -> None:
    groups = [
        {"slices": [{"partitionPath": "p", "fileId": "g"}, {"partitionPath": None, "fileId": "h"}]},
        {"slices": None},
        {"slices": [{"partitionPath": "q", "fileId": "g"}]},
    ]
    record = {"operationType": "CLUSTER", "clusteringPlan": {"inputGroups": groups}}
    plan = ClusteringPlan.from_record(record)
    assert plan is not None
    assert plan.groups == (FileGroupId("p", "g"), FileGroupId("", "h"), FileGroupId("q", "g"))


def test_an_overwrite_has_no_plan() -> None:
    assert ClusteringPlan.from_record({"operationType": None, "clusteringPlan": None}) is None
    other = {"operationType": "INSERT_OVERWRITE", "clusteringPlan": {"inputGroups": []}}
    assert ClusteringPlan.from_record(other) is None
