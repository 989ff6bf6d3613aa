"""Measures what a record index costs a pipeline that reads Kafka.

One topic is read into new tables with a lookup index: some of them also have a record index, which
is global (``table.partition_change: move``) or, with ``--partitioned``, partitioned. The tables are
written in turn, each by a process of ``lakemark run --once``. About half of the records change rows
that exist.

``seconds`` count from the first planned batch to the last commit; ``CPU seconds`` are those of the
whole process and its JVM, with their start.

``python -m benchmarks.index_ingest [--records N] [--batch N] [--repeats N] [--partitioned]``
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import yaml

import lakemark
from benchmarks.engines import work_folder
from benchmarks.many_tables import run_s
from benchmarks.pipelines import COLUMNS
from streamer.broker import EmbeddedBroker
from streamer.demo import create_topic, produce
from streamer.demo.order_stream import OrderMix

_TOPIC = "orders"
_PARTITIONS = 2
#: No broken messages, so that each record is a row, and no deletes, so that each key has a row.
_MIX = OrderMix(broken=0.0, deleted=0.0)
_SCHEMA = pa.schema(
    {
        "order_id": pa.string(),
        "customer": pa.string(),
        "region": pa.string(),
        "status": pa.string(),
        "amount": pa.decimal128(10, 2),
        "quantity": pa.int32(),
        "updated_at": pa.int64(),
        "note": pa.string(),
    }
)
_PLAIN, _INDEXED = "without", "with"


@dataclass(frozen=True, slots=True)
class Run:
    """What one run took; see the module."""

    seconds: float
    cpu_s: float


def main() -> None:
    """Write the tables in turn, and print their times and the cost of the index."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000, help="records of the topic")
    parser.add_argument("--batch", type=int, default=200_000, help="records of a batch")
    parser.add_argument("--repeats", type=int, default=3, help="tables of each kind")
    parser.add_argument("--keep", type=Path, help="work in this new folder, and keep it")
    parser.add_argument("--partitioned", action="store_true", help="the record indexes")
    arguments = parser.parse_args()
    with work_folder(arguments.keep) as folder, EmbeddedBroker(folder / "broker") as broker:
        create_topic(broker.bootstrap, _TOPIC, partitions=_PARTITIONS)
        keys = arguments.records // 2
        produce(
            broker.bootstrap,
            _TOPIC,
            arguments.records,
            keys=keys,
            mix=_MIX,
            partitions=_PARTITIONS,
        )
        runs: dict[str, list[Run]] = {_PLAIN: [], _INDEXED: []}
        for repeat in range(arguments.repeats):
            for kind, done in runs.items():
                own = folder / f"{kind}-{repeat}"
                own.mkdir()
                create(own, kind == _INDEXED, arguments.partitioned)
                done.append(write(broker.bootstrap, own, arguments.batch, arguments.partitioned))
                print(kind, done[-1], flush=True)
    report(runs)


def create(folder: Path, has_record_index: bool, is_partitioned: bool) -> None:
    """Create the empty table that a pipeline then writes."""
    table = lakemark.create(
        str(folder / "orders"),
        schema=_SCHEMA,
        record_key="order_id",
        partition_by="region",
        ordering="updated_at",
        index="lookup",
    )
    if has_record_index:
        table.create_index("record_index", partitioned=is_partitioned)


def write(bootstrap: str, folder: Path, batch: int, is_partitioned: bool) -> Run:
    """Read the topic into the table of a folder in a new process."""
    pipeline, events = folder / "orders.yaml", folder / "events.jsonl"
    change = "allow" if is_partitioned else "move"
    text = yaml.safe_dump(_pipeline(bootstrap, str(folder / "orders"), batch, change))
    pipeline.write_text(text)
    command = [sys.executable, "-m", "lakemark", "run", str(pipeline), "--once"]
    before_s = _children_cpu_s()
    with (folder / "run.log").open("wb") as log:
        subprocess.run([*command, "--events", str(events)], stdout=log, stderr=log, check=True)
    return Run(run_s(events), _children_cpu_s() - before_s)


def report(runs: Mapping[str, list[Run]]) -> None:
    """Print the medians of the runs, and what the index adds to them."""
    seconds = {kind: statistics.median(one.seconds for one in done) for kind, done in runs.items()}
    cpu_s = {kind: statistics.median(one.cpu_s for one in done) for kind, done in runs.items()}
    print("| record index | seconds | CPU seconds |\n|---|---:|---:|")
    for kind in runs:
        print(f"| {kind} | {seconds[kind]:.1f} | {cpu_s[kind]:.1f} |")
    print(
        f"cost: {seconds[_INDEXED] / seconds[_PLAIN] - 1:+.1%} of the time, "
        f"{cpu_s[_INDEXED] / cpu_s[_PLAIN] - 1:+.1%} of the CPU time"
    )


def _pipeline(bootstrap: str, path: str, batch: int, partition_change: str) -> dict[str, object]:
    return {
        "source": {
            "bootstrap_servers": bootstrap,
            "topic": _TOPIC,
            "max_records_per_batch": batch,
        },
        "decode": {"schema": COLUMNS},
        "table": {
            "path": path,
            "record_key": "order_id",
            "partition_by": "region",
            "ordering": "updated_at",
            "partition_change": partition_change,
        },
    }


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
