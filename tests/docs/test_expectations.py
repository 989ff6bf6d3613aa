"""The example on the page about rules does what the page says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import cast

import pytest
import yaml

from lakemark.config import keys
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from streamer.config.load import validated
from streamer.event_text import describe
from streamer.events import RulesViolated
from streamer.pipeline import open_sink
from streamer.sources.kafka import KafkaSource
from tests.docs.test_transforms import Topic
from tests.json_stream import InThisProcess, kafka_batch
from transforms.batch_checks import BatchCheckFailed

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "expectations.md").read_text()
TEXT = " ".join(PAGE.split())


def test_the_example_judges_the_records_as_the_page_says(tmp_path: Path) -> None:
    shown, _ = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    tree = yaml.safe_load(shown)
    assert tree == yaml.safe_load((ROOT / "examples" / "checked_payments.yaml").read_text())
    tree["table"]["path"] = str(tmp_path / "payments")
    (text,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    records = [json.loads(line) for line in text.splitlines()]
    sink, _ = open_sink(validated(tree), cast(KafkaSource, Topic()))
    result = sink.write(kafka_batch("payments", 0, records), InThisProcess())
    assert describe(RulesViolated(0, result.violations)) in TEXT
    table = open_table(StorageLocation(tree["table"]["path"]))
    rows = {row["id"]: row for row in table.scan().to_reader().read_all().to_pylist()}
    assert sorted(rows) == ["1", "2", "4"]
    assert rows["4"]["settled_at"] is None
    letters = open_table(StorageLocation(f"{tree['table']['path']}_dead_letters"))
    (reject,) = letters.scan().to_reader().read_all().to_pylist()
    assert (reject["offset"], reject["stage"]) == (2, "expect")
    assert f"`{reject['reason']}`" in TEXT
    (commit,) = [one for one in table.timeline.instants if one.is_completed]
    (counts,) = re.findall(r"`\[(\{\"rule\".*?\})\]`", PAGE)
    assert counts in table.store.read_commit(commit).extra_metadata[keys.EXPECTATIONS]


def test_the_checks_on_the_page_judge_batches_of_orders(tmp_path: Path) -> None:
    _, checks = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    tree = yaml.safe_load((ROOT / "examples" / "orders.yaml").read_text()) | yaml.safe_load(checks)
    tree["table"]["path"] = str(tmp_path / "orders")
    sink, _ = open_sink(validated(tree), cast(KafkaSource, Topic()))

    def write(offset: int, *changes: tuple[str, str]) -> list[str]:
        at = "2026-05-01T08:00:00Z"
        rows = [{"order_id": key, "region": region, "updated_at": at} for key, region in changes]
        result = sink.write(kafka_batch("orders", offset, rows), InThisProcess())
        return [str(one.result) for one in result.check_violations]

    assert write(0, ("1", "EU")) == ["returned 1 row: orders=1"]
    (commit,) = [one for one in sink.table.timeline.instants if one.is_completed]
    with pytest.raises(BatchCheckFailed, match="order_id=1, region=EU, region_1=US"):
        write(1, ("1", "US"))
    with pytest.raises(BatchCheckFailed, match="order_id=2, times=2"):
        write(1, ("2", "EU"), ("2", "EU"))
    (facts,) = re.findall(r"`(\{\"check\".*?\})`", PAGE)
    assert facts in sink.table.store.read_commit(commit).extra_metadata[keys.EXPECTATIONS]
