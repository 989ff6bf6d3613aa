"""The events of runs are those that OpenLineage defines."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from openlineage.client.generated import base

from streamer.hooks.notices import Notice
from streamer.hooks.openlineage_hook import OpenLineageHook, dataset_name
from streamer.hooks.settings import HookSettings
from tests.fixtures.webhook import Webhook
from tests.unit.streamer.hooks.notice_samples import BEGAN, ENDED, FACTS, FAILED, RUN, commit

#: A URI with a scheme, which the specification demands of these fields.
_URI = re.compile(r"[a-z][a-z0-9+.-]*:\S+")


def sent(webhook: Webhook, *notices: Notice, **options: str) -> list[dict[str, Any]]:
    hook = OpenLineageHook(HookSettings(options={"url": webhook.url, **options}))
    for notice in notices:
        assert hook.send(notice)
    return webhook.await_messages(len(notices))


def assert_is_run_event(event: dict[str, Any]) -> None:
    """Check the fields that ``RunEvent`` of OpenLineage 2-0-2 requires, also of the facets."""
    assert {"eventTime", "producer", "schemaURL", "run", "job"} <= event.keys()
    assert _URI.fullmatch(event["producer"])
    assert event["schemaURL"] == base.RunEvent._get_schema()
    assert event["eventType"] in {one.value for one in base.EventType}
    assert str(UUID(event["run"]["runId"])) == event["run"]["runId"]
    assert event["job"]["namespace"]
    assert event["job"]["name"]
    holders = [event["run"], event["job"], *event["inputs"], *event["outputs"]]
    for one in [*event["inputs"], *event["outputs"]]:
        assert one["namespace"]
        assert one["name"]
    for holder in holders:
        for group in ("facets", "inputFacets", "outputFacets"):
            for facet in holder.get(group, {}).values():
                assert _URI.fullmatch(facet["_producer"])
                assert _URI.fullmatch(facet["_schemaURL"])


def test_run_is_a_job_run_from_start_to_end(webhook: Webhook) -> None:
    events = sent(webhook, BEGAN, commit(1), commit(2), ENDED)
    for event in events:
        assert_is_run_event(event)
        assert event["run"]["runId"] == str(RUN)
        assert (event["job"]["namespace"], event["job"]["name"]) == ("lakemark", "shop-orders")
        (source,), (table,) = event["inputs"], event["outputs"]
        assert (source["namespace"], source["name"]) == ("kafka://kafka-1:9092", "orders")
        assert (table["namespace"], table["name"]) == ("s3://lake", "shop/orders")
    assert [event["eventType"] for event in events] == ["START", "RUNNING", "RUNNING", "COMPLETE"]


def test_commit_has_its_schema_and_its_numbers(webhook: Webhook) -> None:
    (event,) = sent(webhook, commit(), namespace="shop")
    assert event["job"]["namespace"] == "shop"
    assert event["eventTime"] == "2026-01-31T06:00:01.123Z"
    (source,), (table,) = event["inputs"], event["outputs"]
    assert source["inputFacets"]["inputStatistics"]["rowCount"] == 11
    counts = table["outputFacets"]["outputStatistics"]
    assert (counts["rowCount"], counts["size"], counts["fileCount"]) == (10, 1000, 2)
    assert table["facets"]["version"]["datasetVersion"] == "20260131060000121"
    columns = [(one["name"], one["type"]) for one in table["facets"]["schema"]["fields"]]
    assert columns == [("id", "string"), ("amount", "decimal128(10, 2)")]
    facet = event["run"]["facets"]["lakemark_commit"]
    assert facet["instant"] == "20260131060000121"
    assert (facet["recordsRead"], facet["recordsRejected"], facet["rowsDeleted"]) == (11, 1, 2)
    assert facet["position"] == "orders,0:112,1:50"


def test_failed_run_has_its_error(webhook: Webhook) -> None:
    (event,) = sent(webhook, FAILED)
    assert_is_run_event(event)
    assert event["eventType"] == "FAIL"
    error = event["run"]["facets"]["errorMessage"]
    assert error["message"] == "LostOffsets: offsets 3 to 7 were deleted"
    assert error["programmingLanguage"] == "PYTHON"


def test_source_of_files_is_named_by_its_store(webhook: Webhook) -> None:
    facts = replace(FACTS, source_kind="files", source="file:///data/in", brokers="")
    (event,) = sent(webhook, replace(BEGAN, facts=facts))
    (source,) = event["inputs"]
    assert (source["namespace"], source["name"]) == ("file", "/data/in")


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("s3://lake/shop/orders", ("s3://lake", "shop/orders")),
        ("file:///lake/orders", ("file", "/lake/orders")),
        ("/lake/orders", ("file", "/lake/orders")),
        ("gs://lake/orders/", ("gs://lake", "orders")),
        (
            "abfss://shop@lake.dfs.core.windows.net/orders",
            ("abfss://shop@lake.dfs.core.windows.net", "orders"),
        ),
    ],
)
def test_table_has_the_name_that_other_producers_give_it(url: str, name: tuple[str, str]) -> None:
    assert dataset_name(url) == name
