"""Measures a topic that is routed to many tables against the same topic in one table.

``one``: a pipeline writes all records to one table. ``routed``: a pipeline of the same topic with a
route writes them to as many tables as there are values of a field. Both runs end when they have
read the topic. ``records/s`` counts from the first planned batch of the run to its last commit.
``later`` counts from the end of the first batches (``--skip``), in which the tables are created and
most code is compiled.

``python -m benchmarks.routed [--tables N] [--records N] [--skip N] [--json FILE]``
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

import yaml
from confluent_kafka import Producer

from benchmarks.engines import add_report_options, machine, work_folder
from benchmarks.many_tables import run_s
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from streamer.broker import EmbeddedBroker
from streamer.demo import create_topic

_TOPIC = "events"
_STREAM = "stream"
_PARTITIONS = 2
_CHANGES_PER_KEY = 5
#: The columns of the records.
COLUMNS = {
    "id": "string",
    "kind": "string",
    "customer": "string",
    "status": "string",
    "amount": "double",
    "updated_at": "bigint",
    "note": "string",
}


@dataclass(frozen=True)
class Figures:
    """The figures of one run.

    Attributes:
        tables: the number of tables.
        records: the number of records.
        seconds: the time from the first planned batch to the last commit.
        later_records: the number of records of the later batches.
        later_s: the time from the end of the first batches to the last commit.
    """

    tables: int
    records: int
    seconds: float
    later_records: int
    later_s: float

    @property
    def records_per_s(self) -> float:
        """The rate of all tables together."""
        return self.records / self.seconds

    @property
    def later_records_per_s(self) -> float:
        """The rate of the later batches; 0 if there are none."""
        return self.later_records / self.later_s if self.later_records else 0.0


def main() -> None:
    """Measure both runs, and print their figures."""
    arguments = _parse_arguments()
    with work_folder(arguments.keep) as folder, EmbeddedBroker(folder / "broker") as broker:
        create_topic(broker.bootstrap, _TOPIC, partitions=_PARTITIONS)
        _send(broker.bootstrap, arguments.records, arguments.tables)
        figures = {
            name: _measure(
                broker.bootstrap, folder / name, tables, arguments.records, arguments.skip
            )
            for name, tables in (("one", 1), ("routed", arguments.tables))
        }
    print("\n".join(_as_lines(figures)))
    if arguments.json is not None:
        report = {"machine": machine(), "runs": {n: asdict(one) for n, one in figures.items()}}
        arguments.json.write_text(json.dumps(report, indent=2))


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=50)
    parser.add_argument("--records", type=int, default=2_000_000, help="of all tables together")
    parser.add_argument("--skip", type=int, default=1, help="first batches, at least one")
    add_report_options(parser)
    return parser.parse_args()


def _send(bootstrap: str, records: int, tables: int) -> None:
    keys = _keys(records)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "log_level": 3})
    for number in range(records):
        key = str(number % keys)
        row = {
            "id": key,
            "kind": f"kind{number % tables:03}",
            "customer": f"customer {number % 977}",
            "status": "shipped",
            "amount": number / 100,
            "updated_at": number,
            "note": "left at the door of a neighbour",
        }
        producer.produce(_TOPIC, json.dumps(row), key)
        if number % 10_000 == 0:
            producer.poll(0)
            producer.flush()
    producer.flush()


def _measure(bootstrap: str, folder: Path, tables: int, records: int, skip: int) -> Figures:
    folder.mkdir(parents=True)
    pipeline, events = folder / "pipeline.yaml", folder / "events.jsonl"
    pipeline.write_text(yaml.safe_dump(_pipeline(bootstrap, folder / "lake", tables)))
    command = [sys.executable, "-m", "lakemark", "run", str(pipeline), "--once"]
    with (folder / "run.log").open("wb") as log:
        subprocess.run([*command, "--events", str(events)], stdout=log, stderr=log, check=True)
    found = [path for path in (folder / "lake").iterdir() if (path / ".hoodie").exists()]
    rows = sum(map(_count_rows, found))
    assert (len(found), rows) == (tables, _rows(records, tables)), (len(found), rows)
    return Figures(tables, records, run_s(events), *_later(events, skip))


def _later(events: Path, skip: int) -> tuple[int, float]:
    """Return the records of the batches after the first ones, and the time that they took."""
    found = [json.loads(line) for line in events.read_text().splitlines()]
    batches = [
        one for one in found if one["event"] == "BatchWritten" and one["pipeline"] == _STREAM
    ]
    ends = [datetime.fromisoformat(one["time"]) for one in batches[skip - 1 :]]
    seconds = (ends[-1] - ends[0]).total_seconds() if ends else 0.0
    return sum(one["records_read"] for one in batches[skip:]), seconds


def _count_rows(path: Path) -> int:
    scan = open_table(StorageLocation(str(path))).scan(columns=["id"])
    return int(scan.to_reader().read_all().num_rows)


def _rows(records: int, tables: int) -> int:
    """Return the number of rows in all tables: that of the different keys of each."""
    if tables == 1:
        return _keys(records)
    return len({(number % _keys(records), number % tables) for number in range(records)})


def _keys(records: int) -> int:
    return max(1, records // _CHANGES_PER_KEY)


def _pipeline(bootstrap: str, lake: Path, tables: int) -> dict[str, object]:
    route = {} if tables == 1 else {"route": {"field": "kind"}}
    name = "all" if tables == 1 else "{value}"
    return {
        "name": _STREAM,
        "source": {"bootstrap_servers": bootstrap, "topic": _TOPIC},
        **route,
        "decode": {"schema": COLUMNS},
        "table": {"path": f"{lake}/{name}", "record_key": "id", "ordering": "updated_at"},
        "dead_letters": {"enabled": False},
    }


def _as_lines(figures: dict[str, Figures]) -> Iterator[str]:
    one = figures["one"]
    yield "| | tables | records/s | of one table's rate | later records/s | of one table's rate |"
    yield "|---|---:|---:|---:|---:|---:|"
    for name, found in figures.items():
        rate, later = found.records_per_s, found.later_records_per_s
        ratio = later / one.later_records_per_s if one.later_records else 0.0
        yield (
            f"| {name} | {found.tables} | {rate:,.0f} | {rate / one.records_per_s:.2f} "
            f"| {later:,.0f} | {ratio:.2f} |"
        )


if __name__ == "__main__":
    main()
