"""The plan of a clustering; a requested replace commit without a plan is an overwrite."""

from __future__ import annotations

from lakemark.model.clustering_plan import ClusteringGroup, ClusteringPlan
from lakemark.model.file_names import BaseFileName, LogFileName
from lakemark.model.file_slice import BaseFile, FileGroupId, FileSlice, LogFile
from lakemark.timeline.content import decode_as, encode_clustering_plan


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


def test_a_plan_is_stored_with_absolute_paths_and_read_with_names() -> None:
    group = FileGroupId("p", "g")
    base = BaseFile("p", BaseFileName("g", "0-0-0", "20260101000000000"), 3 << 20)
    logs = tuple(
        LogFile("p", LogFileName("g", f"2026010100000000{n}", 1, "0-0-0"), 5) for n in (1, 2)
    )
    one = FileSlice(group, "20260101000000000", base, logs)
    extra = {"key": "value"}
    plan = ClusteringPlan(
        input_groups=(ClusteringGroup.of([one], 2, extra),),
        strategy="s",
        strategy_params={"a": "b"},
    )
    record = plan.to_record("file:///lake/t")
    (stored,) = record["clusteringPlan"]["inputGroups"]
    assert stored["slices"] == [
        {
            "dataFilePath": f"file:///lake/t/p/{base.name}",
            "deltaFilePaths": [f"file:///lake/t/p/{log.name}" for log in reversed(logs)],
            "fileId": "g",
            "partitionPath": "p",
            "bootstrapFilePath": "",
            "version": 1,
        }
    ]
    assert stored["metrics"]["TOTAL_LOG_FILES"] == 2.0
    assert ClusteringPlan.from_record(record) == plan
    content = encode_clustering_plan(plan, "file:///lake/t")
    assert decode_as(ClusteringPlan.from_record, content, "plan") == plan
    assert plan.replaced_file_ids == {"p": ("g",)}
