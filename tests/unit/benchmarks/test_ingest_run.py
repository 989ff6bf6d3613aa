"""How the ingest benchmark chooses and runs engines, and compares tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import yaml

from benchmarks.ingest.__main__ import parse_arguments, sized
from benchmarks.ingest.contents import check_rows
from benchmarks.ingest.engines import ENGINES
from benchmarks.ingest.measure import turns
from benchmarks.peers import lakemark_stream
from benchmarks.peers.contract import Task
from benchmarks.peers.hudi_streaming_sink import write_options
from benchmarks.peers.merge_stream import merge_statement
from benchmarks.workloads.catalog import WORKLOADS
from benchmarks.workloads.workload import Phase
from streamer.config.load import load


def task(workload: str) -> Task:
    return Task(
        bootstrap="localhost:9092",
        topic=workload,
        table_path="build/table",
        scratch_path="build",
        answer_path="build/answer.json",
        records_per_batch=100,
        driver_memory="1g",
        table=WORKLOADS[workload].table_shape(),
    )


def test_engines_alternate_and_none_is_always_first() -> None:
    order = list(turns(["a", "b"], 3))
    assert order == [(0, "a"), (0, "b"), (1, "b"), (1, "a"), (2, "a"), (2, "b")]


def test_only_merges_refuse_more_than_a_million_records() -> None:
    refusals = {name: one.refusal(WORKLOADS["upserts_2m"]) for name, one in ENGINES.items()}
    assert {name for name, reason in refusals.items() if reason} == {"delta", "iceberg"}
    assert all(one.refusal(WORKLOADS["upserts_1m"]) is None for one in ENGINES.values())


def test_the_command_line_chooses_workloads_engines_and_sizes() -> None:
    words = ["--workloads", "avro,small_batches", "--engines", "floor", "--records", "700"]
    arguments = parse_arguments([*words, "--batch", "70", "--small-batches", "3"])
    assert (arguments.workloads, arguments.engines) == (["avro", "small_batches"], ["floor"])
    assert sized(WORKLOADS["avro"], arguments).phases == (Phase(700, 70),)
    sizes = sized(WORKLOADS["small_batches"], arguments).phases
    assert sizes == (Phase(700, 70), Phase(300, 100))
    assert parse_arguments([]).repeats == 3
    with pytest.raises(SystemExit):
        parse_arguments(["--workloads", "upsert"])


@pytest.mark.parametrize("workload", sorted(WORKLOADS))
def test_lakemark_accepts_the_settings_of_each_workload(workload: str, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(yaml.safe_dump(lakemark_stream.pipeline_tree(task(workload))))
    config = load(str(file), [])
    assert config.table.buckets == WORKLOADS[workload].buckets
    assert config.decode.format == ("avro" if workload == "avro" else "json")


def test_a_task_is_the_same_after_it_was_written_and_read() -> None:
    assert Task.from_json(task("deletes").to_json()) == task("deletes")


def test_all_engines_write_the_same_layout() -> None:
    table = WORKLOADS["partitions_200"].table_shape()
    options = write_options(table, has_metadata_table=False)
    assert options["hoodie.bucket.index.num.buckets"] == "1"
    assert options["hoodie.metadata.enable"] == "false"
    tree = lakemark_stream.pipeline_tree(task("partitions_200"))
    assert (tree["table"]["buckets"], tree["table"]["partition_by"]) == (1, "region")


def test_a_merge_deletes_only_if_the_workload_does() -> None:
    deletes = merge_statement(WORKLOADS["deletes"].table_shape(), "t")
    assert "arrived._hoodie_is_deleted THEN DELETE" in deletes
    assert "NOT MATCHED AND NOT arrived._hoodie_is_deleted THEN INSERT" in deletes
    assert "DELETE" not in merge_statement(WORKLOADS["avro"].table_shape(), "t")


def test_a_table_with_the_newest_rows_in_any_order_is_right() -> None:
    expected = WORKLOADS["upserts_1m"].resized(500, None).newest_rows()
    check_rows(expected, expected)
    others = expected.append_column("_hoodie_commit_time", pa.nulls(len(expected), pa.string()))
    check_rows(others.take(list(reversed(range(len(expected))))), expected)


def test_a_table_with_a_missing_double_or_older_row_is_wrong() -> None:
    workload = WORKLOADS["upserts_1m"].resized(500, None)
    expected = workload.newest_rows()
    older = replace(workload, phases=(Phase(499, 100),)).newest_rows()
    for held in (expected.slice(1), pa.concat_tables([expected, expected.slice(0, 1)]), older):
        with pytest.raises(AssertionError, match="rows differ"):
            check_rows(held, expected)
