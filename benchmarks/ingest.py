"""Measures ingest: one topic, read in turn by the floor, lakemark and Apache Hudi's own sink.

Each engine runs alone, in its own process, with two threads and the same heap. It first reads large
batches and then, after more records were sent, small ones. Afterwards Apache Hudi reads every
table, and each must have exactly the newest version of every record that was sent.

``python -m benchmarks.ingest [--records N] [--batch N] [--engines NAME,…] [--json FILE]``
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa

from benchmarks import workload
from benchmarks.engines import Engine, add_options, machine, work_folder
from benchmarks.figures import Figures, as_lines, durations_s, ratios
from benchmarks.peers.contract import Answer, Task
from streamer.broker import EmbeddedBroker
from tests.interop.oracle import Oracle
from tests.interop.same_rows import assert_same_rows

LAKEMARK = "lakemark"
SMALL_BATCH_RECORDS = 100
#: Reads the topic like the others, and writes nothing.
FLOOR = "floor"
_STREAM, _SINK = "benchmarks.peers.lakemark_stream", "benchmarks.peers.hudi_streaming_sink"
ENGINES = {
    FLOOR: Engine("benchmarks.peers.floor", on_spark35=False),
    LAKEMARK: Engine(_STREAM, on_spark35=False),
    "lakemark_without_metadata": Engine(
        _STREAM, ("--set", "table.metadata_table=false"), on_spark35=False
    ),
    "lakemark_without_read_ahead": Engine(
        _STREAM, ("--set", "run.read_ahead=false"), on_spark35=False
    ),
    "hudi": Engine(_SINK),
    "hudi_without_metadata": Engine(_SINK, ("--no-metadata-table",)),
}


def main() -> None:
    arguments = parse_arguments()
    with work_folder(arguments.keep) as folder:
        report = measure(arguments, folder)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--batch", type=int, default=200_000, help="records in a large batch")
    parser.add_argument("--small-batches", type=int, default=21)
    add_options(parser, ENGINES)
    return parser.parse_args()


def measure(arguments: argparse.Namespace, folder: Path) -> dict[str, object]:
    """Run everything below ``folder``, print the figures, and return the report."""
    small_records = arguments.small_batches * SMALL_BATCH_RECORDS
    with EmbeddedBroker(folder / "broker", heap="1g") as broker:
        workload.send(broker.bootstrap, 0, arguments.records)
        large = _run_all(arguments, folder, broker.bootstrap, arguments.records, arguments.batch)
        workload.send(broker.bootstrap, arguments.records, small_records)
        small = _run_all(arguments, folder, broker.bootstrap, small_records, SMALL_BATCH_RECORDS)
    tables = {name: folder / name / "table" for name in large if name != FLOOR}
    check_tables(tables, workload.newest_rows(arguments.records + small_records), folder)
    figures = {name: Figures.of(large[name], small[name]) for name in large}
    print("\n".join(as_lines(figures, LAKEMARK)), flush=True)
    return {
        "machine": machine(),
        "settings": {
            "records": arguments.records,
            "batch": arguments.batch,
            "small_batch": SMALL_BATCH_RECORDS,
        },
        "figures": {name: asdict(each) for name, each in figures.items()},
        "ratios": ratios(figures, LAKEMARK) if LAKEMARK in figures else {},
        "large_batches_s": {name: durations_s(each) for name, each in large.items()},
        "small_batches_s": {name: durations_s(each) for name, each in small.items()},
    }


def _run_all(
    arguments: argparse.Namespace, folder: Path, bootstrap: str, records: int, batch: int
) -> dict[str, Answer]:
    """Run every engine, one after the other, on the records that it has not read yet."""
    print(f"{records:,} records in batches of {batch:,}", flush=True)
    # Spark rounds each partition's share down; the rest would be another batch of a few records
    records_per_batch = batch + workload.KAFKA_PARTITIONS
    answers = {}
    for name in arguments.engines:
        task = Task(
            bootstrap=bootstrap,
            topic=workload.TOPIC,
            table_path=str(folder / name / "table"),
            scratch_path=str(folder / name),
            answer_path=str(folder / name / "answer.json"),
            records_per_batch=records_per_batch,
            driver_memory=arguments.driver_memory,
        )
        answers[name] = run(name, task, records)
        took_s = sum(durations_s(answers[name]))
        print(f"  {name}: {len(answers[name].batches)} batches in {took_s:.1f} s", flush=True)
    return answers


def run(name: str, task: Task, records: int) -> Answer:
    """Run one engine on one task, in its own process.

    Raises:
        RuntimeError: the engine failed, or did not read every record that was sent.
    """
    scratch = Path(task.scratch_path)
    scratch.mkdir(exist_ok=True)
    ENGINES[name].run(task.to_json(), scratch)
    answer = Answer.read(Path(task.answer_path))
    read = sum(batch.records for batch in answer.batches)
    if read != records:
        message = f"{name} read {read:,} of {records:,} records"
        raise RuntimeError(message)
    return answer


def check_tables(tables: dict[str, Path], expected: pa.Table, folder: Path) -> None:
    """Compare every table, as Apache Hudi reads it, with the records that were sent.

    Raises:
        AssertionError: a table has other rows; the message shows some.
    """
    if not tables:
        return
    oracle_folder = folder / "oracle"
    oracle_folder.mkdir()
    oracle = Oracle(oracle_folder)
    try:
        for name, path in tables.items():
            print(f"comparing {expected.num_rows:,} rows of {name}", flush=True)
            _check_rows(oracle.read(path).select(expected.column_names), expected)
    finally:
        oracle.close()


def _check_rows(held: pa.Table, expected: pa.Table) -> None:
    nullable = pa.schema([field.with_nullable(True) for field in expected.schema])
    held = held.sort_by(workload.RECORD_KEY)
    if held.schema != nullable or not held.equals(expected.cast(nullable)):
        assert_same_rows(held, expected)


if __name__ == "__main__":
    main()
