"""The example on the page about transforms does what the page says."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import cast

import pytest
import yaml

from lakemark.errors import InvalidConfig
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from streamer.config.load import load, validated
from streamer.pipeline import open_sink
from streamer.sources.kafka import KafkaSource
from tests.json_stream import InThisProcess, Record, kafka_batch
from transforms.steps.expression import FUNCTIONS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "transforms.md").read_text()


class Topic:
    def start(self, _: None) -> None:
        """Raise no error."""


def test_the_example_writes_the_row_and_the_dead_letter_that_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[0]
    tree = yaml.safe_load(shown)
    assert tree == yaml.safe_load((ROOT / "examples" / "customer_orders.yaml").read_text())
    monkeypatch.setenv("MAIL_SALT", "pepper")
    tree["table"]["path"] = str(tmp_path / "orders")
    (text,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    records = [json.loads(one) for one in re.split(r"\n(?=\{)", text)]
    sink, _ = open_sink(validated(tree), cast(KafkaSource, Topic()))
    result = sink.write(kafka_batch("shop_orders", 0, records), InThisProcess())
    assert (result.records, result.filtered, result.rejected) == (3, 1, 1)
    table = open_table(StorageLocation(tree["table"]["path"]))
    (row,) = table.scan().to_reader().read_all().to_pylist()
    (said,) = re.findall(r"with the columns (.*?):", PAGE, re.DOTALL)
    assert set(re.findall(r"`(\w+)`", said)) == {n for n in row if not n.startswith("_hoodie_")}
    assert (row["order_id"], row["total"]) == ("1", Decimal("5.00"))
    assert len(row["customer_mail"]) == 64
    letters = open_table(StorageLocation(f"{tree['table']['path']}_dead_letters"))
    (reject,) = letters.scan().to_reader().read_all().to_pylist()
    begin = "transform.3.cast: column 'price' cannot be cast to decimal128(10, 2)"
    assert begin in " ".join(PAGE.split())
    assert (reject["stage"], reject["reason"][: len(begin)]) == ("transform", begin)


def test_the_step_of_a_package_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, program = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (declared,) = re.findall(r"```toml\n.*?\n(.*?)```", PAGE, re.DOTALL)
    package = tmp_path / "site"
    (package / "shop").mkdir(parents=True)
    (package / "shop" / "__init__.py").touch()
    (package / "shop" / "transforms.py").write_text(program)
    info = package / "shop-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shop\nVersion: 1\n")
    points = declared.replace('"', "")
    (info / "entry_points.txt").write_text(f"[lakemark.transforms]\n{points}")
    monkeypatch.syspath_prepend(str(package))
    (shown,) = re.findall(r"`(\{step: plugin.*?\}\})`", PAGE, re.DOTALL)
    tree = {
        "source": {"bootstrap_servers": "b:1", "topic": "t"},
        "decode": {"schema": {"id": "string", "note": "string"}},
        "transform": [yaml.safe_load(shown)],
        "table": {"path": str(tmp_path / "notes"), "record_key": "id"},
    }
    sink, _ = open_sink(validated(tree), cast(KafkaSource, Topic()))
    sink.write(kafka_batch("t", 0, [{"id": "1", "note": "x" * 30}]), InThisProcess())
    (row,) = open_table(StorageLocation(str(tmp_path / "notes"))).scan().to_table().to_pylist()
    assert row["note"] == "x" * 20
    tree["transform"] = [{"step": "plugin", "name": "lengthen"}]
    with pytest.raises(InvalidConfig, match=r"transform.0.plugin: .*'lengthen' .*shorten"):
        validated(tree)


def test_the_function_of_the_page_runs(tmp_path: Path) -> None:
    program, _ = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (shown,) = re.findall(r"`(\{step: python.*?\})`", PAGE)
    (tmp_path / "prices.py").write_text(program)
    tree = {
        "source": {"bootstrap_servers": "b:1", "topic": "t"},
        "decode": {"schema": {"id": "string", "price": "double"}, "tombstones": "ignore"},
        "transform": [yaml.safe_load(shown)],
        "table": {"path": str(tmp_path / "rows"), "record_key": "id"},
    }
    (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump(tree))
    sink, _ = open_sink(load(str(tmp_path / "pipeline.yaml")), cast(KafkaSource, Topic()))
    sink.write(kafka_batch("t", 0, [{"id": "1", "price": 100.0}]), InThisProcess())
    (row,) = open_table(StorageLocation(str(tmp_path / "rows"))).scan().to_table().to_pylist()
    assert row["taxed"] == pytest.approx(108.0)


def test_the_query_of_the_page_runs(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    example = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[0]
    (query,) = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    (step,) = re.findall(r"`(\{step: sql.*?\}\})`", PAGE)
    tree = {**yaml.safe_load(example), "transform": [yaml.safe_load(step)]}
    tree["table"] = {"path": str(tmp_path / "rows"), "record_key": "order_id"}
    (tmp_path / "orders.sql").write_text(query)
    (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump(tree))
    sink, _ = open_sink(load(str(tmp_path / "pipeline.yaml")), cast(KafkaSource, Topic()))
    records: list[Record] = [
        {"id": "1", "customer": {"name": "Ann"}, "is_test": False},
        {"id": "2"},
    ]
    result = sink.write(kafka_batch("shop_orders", 0, records), InThisProcess())
    assert (result.records, result.filtered) == (2, 1)
    (row,) = open_table(StorageLocation(str(tmp_path / "rows"))).scan().to_table().to_pylist()
    assert (row["order_id"], row["customer_name"]) == ("1", "ANN")


def test_the_page_lists_every_function_of_expressions() -> None:
    rows = re.findall(r"^\| (`\w+\(.*?) \|", PAGE, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)\(", row)} == {*FUNCTIONS}
