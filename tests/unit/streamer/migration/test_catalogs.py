"""The sync of a job becomes the section ``catalogs``."""

from __future__ import annotations

from typing import Any

import pytest

from streamer.migration.report import render_report
from tests.unit.streamer.migration.jobs import job, missing, settings, translated

SYNC = "hoodie.datasource.hive_sync."
URIS = {f"{SYNC}metastore.uris": "thrift://metastore:9083"}
HIVE = "org.apache.hudi.hive.HiveSyncTool"
GLUE = "org.apache.hudi.aws.sync.AwsGlueCatalogSyncTool"
OF_HIVE = {"kind": "hive", "database": "default", "options": {"uris": "thrift://metastore:9083"}}


def catalogs(properties: dict[str, str], options: dict[str, str | None]) -> Any:
    return settings(translated(properties, **options)).get("catalogs")


@pytest.mark.parametrize(
    ("properties", "options", "expected"),
    [
        (URIS, {"enable_sync": ""}, [OF_HIVE]),
        (URIS, {"enable_hive_sync": ""}, [OF_HIVE]),
        ({**URIS, f"{SYNC}enable": "true"}, {}, [OF_HIVE]),
        (
            {**URIS, f"{SYNC}database": "shop", f"{SYNC}table": "sold"},
            {"enable_sync": "", "sync_tool_classes": f"{HIVE},{GLUE}"},
            [
                {**OF_HIVE, "database": "shop", "table": "sold"},
                {"kind": "glue", "database": "shop", "table": "sold"},
            ],
        ),
        (
            {**URIS, f"{SYNC}table.strategy": "RO", f"{SYNC}auto_create_database": "false"},
            {"enable_sync": ""},
            [{**OF_HIVE, "merge_on_read": "read_optimized", "create_database": False}],
        ),
        (
            URIS,
            {"enable_sync": "", "target_base_path": "s3a://lake/orders"},
            [{**OF_HIVE, "location": "s3a://lake/orders"}],
        ),
        (URIS, {}, None),
        ({**URIS, f"{SYNC}enable": "false"}, {}, None),
    ],
)
def test_sync_becomes_catalogs(
    properties: dict[str, str], options: dict[str, str | None], expected: Any
) -> None:
    assert catalogs(properties, options) == expected


@pytest.mark.parametrize(
    ("properties", "options", "reason"),
    [
        ({}, {"enable_sync": ""}, "hive-site.xml"),
        ({f"{SYNC}metastore.uris": "metastore"}, {"enable_sync": ""}, "uris"),
        (
            URIS,
            {"enable_sync": "", "sync_tool_classes": "org.apache.hudi.gcp.BigQuerySyncTool"},
            "BigQuerySyncTool: only a Hive metastore",
        ),
        (
            {**URIS, f"{SYNC}table_properties": "a=b"},
            {"enable_sync": ""},
            "set them in catalogs.parameters",
        ),
        ({**URIS, f"{SYNC}skip_ro_suffix": "true"}, {"enable_sync": ""}, "suffix _ro"),
        ({**URIS, f"{SYNC}table.strategy": "ODD"}, {"enable_sync": ""}, "ODD: choose the names"),
    ],
)
def test_rest_is_reported_and_changes_no_rows(
    properties: dict[str, str], options: dict[str, str | None], reason: str
) -> None:
    found = translated(properties, **options)
    assert any(reason in text for text in missing(found, changes_rows=False).values())
    assert found.is_complete
    assert reason in render_report(found, job(properties, **options))
