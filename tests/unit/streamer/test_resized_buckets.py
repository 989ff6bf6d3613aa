"""Pipelines and the command line resize the buckets of tables with consistent hashing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

import lakemark
from lakemark.errors import InvalidConfig
from lakemark.execution.runner import LocalRunner
from lakemark.model.action import Action
from lakemark.operations.resize_buckets import request_resize
from streamer.cli import FAILED, MISUSED, OK, main
from streamer.config.errors import ConfigError
from streamer.config.load import validated
from streamer.config.pipeline import PipelineConfig
from streamer.events import Event, ServiceCompleted
from streamer.pipeline import _policies, open_sink
from streamer.services import TableServices
from streamer.sources.kafka import KafkaSource
from tests.json_stream import InThisProcess, kafka_batch
from tests.rings import SPLIT_ALL
from tests.unit.streamer.test_opened_sink import COLUMNS, Topic

#: Each bucket with rows is above the limit.
SMALL = {"split_above_bytes": 1, "merge_below_bytes": 0}


def config(folder: Path, table: dict[str, Any], **sections: Any) -> PipelineConfig:
    return validated(
        {
            "source": {"bootstrap_servers": "localhost:9092", "topic": "orders"},
            "decode": COLUMNS,
            "table": {"path": str(folder / "rows"), "record_key": "id", **table},
            **sections,
        }
    )


def run(pipeline: PipelineConfig, offset: int, keys: range) -> list[str]:
    """Start a pipeline, write one batch, run the services; return the summaries of resizes."""
    sink, writers = open_sink(pipeline, cast(KafkaSource, Topic()))
    events: list[Event] = []
    services = TableServices(writers, _policies(pipeline), LocalRunner(1), events.append)
    sink.recover()
    services.run()
    sink.progress()
    rows = [{"id": f"k{key}", "region": "north"} for key in keys]
    sink.write(kafka_batch("orders", offset, rows), InThisProcess())
    services.run()
    done = [event for event in events if isinstance(event, ServiceCompleted)]
    return [event.summary for event in done if event.service == "bucket_resizing"]


def keys_of(folder: Path) -> list[str]:
    rows = lakemark.open(folder / "rows").scan(columns=["id"]).to_table()
    return sorted(rows["id"].to_pylist())


def test_pipeline_splits_buckets_between_batches(tmp_path: Path) -> None:
    table = {"index": "consistent_hashing", "buckets": 2}
    pipeline = config(tmp_path, table, bucket_resizing={**SMALL, "mode": "inline"})
    written = 0
    summaries = []
    for start in range(3):
        summaries += run(pipeline, written, range(start * 10, start * 10 + 20))
        written += 20
    assert len(summaries) == 5, "at each start except the first one, and after each batch"
    assert all("1 bucket rewritten into" in one for one in summaries), "one large bucket each time"
    assert keys_of(tmp_path) == sorted(f"k{n}" for n in range(40))
    opened = lakemark.open(tmp_path / "rows")
    assert len(opened.timeline.completed(Action.REPLACE_COMMIT)) == 5


@pytest.mark.parametrize(
    "sections",
    [
        {"bucket_resizing": {**SMALL, "enabled": False}},
        {"bucket_resizing": SMALL, "concurrency": {"mode": "multi_writer"}},
        {},
    ],
)
def test_pipeline_resizes_only_as_its_settings_say(
    tmp_path: Path, sections: dict[str, Any]
) -> None:
    pipeline = config(tmp_path, {"index": "consistent_hashing"}, **sections)
    assert run(pipeline, 0, range(20)) == []


def test_pipeline_executes_a_plan_that_it_would_not_make(tmp_path: Path) -> None:
    pipeline = config(tmp_path, {"index": "consistent_hashing"}, bucket_resizing={"enabled": False})
    run(pipeline, 0, range(20))
    planned = request_resize(lakemark.open(tmp_path / "rows", only_writer=True)._table, SPLIT_ALL)
    assert planned is not None
    assert len(run(pipeline, 20, range(10, 30))) == 1
    assert keys_of(tmp_path) == sorted(f"k{n}" for n in range(30))


def test_pipeline_keeps_the_index_of_the_table(tmp_path: Path) -> None:
    run(config(tmp_path, {"index": "consistent_hashing"}), 0, range(5))
    run(config(tmp_path, {}), 5, range(5, 10))
    with pytest.raises(InvalidConfig, match=r"no fixed number of buckets.*table\.buckets"):
        run(config(tmp_path, {"buckets": 4}), 10, range(5))
    run(config(tmp_path / "other", {}), 0, range(5))
    with pytest.raises(InvalidConfig, match="has no consistent hashing"):
        run(config(tmp_path / "other", {"index": "consistent_hashing"}), 5, range(5))


@pytest.mark.parametrize(
    ("table", "resizing", "setting"),
    [
        ({"type": "copy_on_write"}, {}, "table.index"),
        ({"partition_change": "reject", "partition_by": "region"}, {}, "table.index"),
        ({"meta_columns": False}, {}, "table.index"),
        (
            {},
            {"split_above_bytes": 100, "merge_below_bytes": 50},
            "bucket_resizing.merge_below_bytes",
        ),
    ],
)
def test_contradicting_settings_are_refused(
    tmp_path: Path, table: dict[str, Any], resizing: dict[str, int], setting: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        config(tmp_path, {"index": "consistent_hashing", **table}, bucket_resizing=resizing)
    assert setting in str(refused.value)


def test_command_prints_its_plan_and_executes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = pa.schema([("id", pa.string()), ("v", pa.int64())])
    path = str(tmp_path / "t")
    table = lakemark.create(path, schema=schema, record_key="id", index="consistent_hashing")
    command = ["table", "resize-buckets", path, "--clock-skew-ms", "0", "--json"]
    limits = ["--split-above-bytes", "1", "--merge-below-bytes", "0"]
    table.upsert(pa.table([[f"k{n}" for n in range(50)], range(50)], schema=schema))
    assert main(command) == OK
    assert capsys.readouterr().out == ""
    assert main([*command, *limits]) == OK
    planned = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["buckets"] for row in planned] == [1, 1, 1, 1]
    assert not table.timeline.completed(Action.REPLACE_COMMIT)
    assert main([*command, *limits, "--run"]) == OK
    (done,) = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (done["buckets"], done["rows"]) == (4, 50)
    table.refresh()
    assert table.scan().to_table().num_rows == 50
    assert main([*command, "--split-above-bytes", "3", "--merge-below-bytes", "2"]) == MISUSED
    assert "split again" in capsys.readouterr().err


def test_command_refuses_tables_with_a_fixed_number_of_buckets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "t")
    lakemark.create(path, schema=pa.schema([("id", pa.string())]), record_key="id")
    assert main(["table", "resize-buckets", path]) == FAILED
    assert "number of buckets is fixed" in capsys.readouterr().err
