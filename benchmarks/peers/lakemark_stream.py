"""lakemark itself, run with its command line on ``orders.yaml``, as users run it.

Its batches are read from its event log (``--events``): one JSON object for each event, with the
event's name as ``event``, the time as ``at`` and the event's own fields (``streamer/events.py``).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks import workload
from benchmarks.peers.contract import Answer, Batch, Task

PIPELINE = Path(__file__).with_name("orders.yaml")

#: Events that end a piece of work on the table; the newest of them ends the work of a run.
_WORK_DONE = ("BatchWritten", "CompactionCompleted", "ServiceCompleted")


def main() -> None:
    task = Task.from_json(Path(sys.argv[1]).read_text())
    events_path = Path(task.scratch_path) / "events.jsonl"
    events_path.unlink(missing_ok=True)
    lakemark = Path(sys.executable).with_name("lakemark")
    subprocess.run(
        [lakemark, "run", PIPELINE, "--events", events_path, *overrides(task), *sys.argv[2:]],
        check=True,
    )
    with events_path.open() as lines:
        answer(map(json.loads, lines)).write(Path(task.answer_path))


def overrides(task: Task) -> list[str]:
    """Return the settings that differ between runs, and those that all engines must share."""
    settings = {
        "source.bootstrap_servers": task.bootstrap,
        "source.topic": task.topic,
        "source.max_records_per_batch": task.records_per_batch,
        "table.path": task.table_path,
        "table.buckets": workload.BUCKETS,
        "compaction.every_delta_commits": workload.COMPACT_EVERY,
        "spark.conf.spark.driver.memory": task.driver_memory,
    }
    return [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]


def answer(events: Iterable[Mapping[str, Any]]) -> Answer:
    """Return the batches, from ``BatchPlanned`` to ``BatchWritten``, and when the work ended.

    The first batch begins with ``RunStarted``, because Spark's own progress, which times the peers,
    also includes the time before the rows of a batch are read.
    """
    started_s: dict[int, float] = {}
    batches: list[Batch] = []
    run_started_s = ended_s = 0.0
    for event in events:
        at_s = datetime.fromisoformat(event["time"]).timestamp()
        if event["event"] == "RunStarted":
            run_started_s = at_s
        if event["event"] == "BatchPlanned":
            started_s[event["batch_id"]] = at_s if batches else run_started_s
        if event["event"] == "BatchWritten":
            batches.append(Batch(event["records_read"], started_s[event["batch_id"]], at_s))
        if event["event"] in _WORK_DONE:
            ended_s = at_s
    return Answer.of(batches, ended_s)


if __name__ == "__main__":
    main()
