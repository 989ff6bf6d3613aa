"""lakemark itself, run with its command line on ``orders.yaml`` and the settings of the task.

Its batches are read from its event log (``--events``): one JSON object for each event, with the
event's name as ``event``, the time as ``at`` and the event's own fields (``streamer/events.py``).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from benchmarks.peers.contract import Answer, Batch, Task
from streamer import class_archive
from streamer.toolchain import find_java, find_spark

PIPELINE = Path(__file__).with_name("orders.yaml")

#: Events that end a piece of work on the table; the newest of them ends the work of a run.
_WORK_DONE = ("BatchWritten", "CompactionCompleted", "ServiceCompleted")


def main() -> None:
    task = Task.from_json(Path(sys.argv[1]).read_text())
    run(task, [Path(sys.executable).with_name("lakemark")], sys.argv[2:])


def run(task: Task, program: Sequence[str | Path], flags: Sequence[str] = ()) -> None:
    """Run a pipeline until it has caught up, and write the answer.

    Args:
        task: the task.
        program: the command line of lakemark, without its arguments.
        flags: further flags of ``lakemark run``.
    """
    scratch = Path(task.scratch_path)
    events_path, pipeline = scratch / "events.jsonl", scratch / "pipeline.yaml"
    events_path.unlink(missing_ok=True)
    pipeline.write_text(yaml.safe_dump(pipeline_tree(task), sort_keys=False))
    # An installation has this archive (``make jars``); its creation is not measured.
    class_archive.make(find_java(), find_spark())
    subprocess.run([*program, "run", pipeline, "--events", events_path, *flags], check=True)
    with events_path.open() as lines:
        answer(map(json.loads, lines)).write(Path(task.answer_path))


def pipeline_tree(task: Task) -> dict[str, dict[str, object]]:
    """Return the content of the pipeline file, with the settings that all engines must share."""
    tree: dict[str, dict[str, object]] = yaml.safe_load(PIPELINE.read_text())
    table = task.table
    tree["source"] |= {
        "bootstrap_servers": task.bootstrap,
        "topic": task.topic,
        "max_records_per_batch": task.records_per_batch,
    }
    tree["decode"] = {"schema": dict(table.columns), **_avro_settings(table.avro_schema)}
    tree["table"] |= {
        "path": task.table_path,
        "record_key": table.record_key,
        "partition_by": table.partition,
        "ordering": table.ordering,
        "buckets": table.buckets,
    }
    tree["compaction"] = {"after_commits": table.compact_every}
    tree["spark"]["conf"] = {"spark.driver.memory": task.driver_memory}
    return tree


def _avro_settings(schema: str | None) -> dict[str, object]:
    if schema is None:
        return {}
    return {"format": "avro", "wire_format": "plain", "writer_schema": schema}


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
