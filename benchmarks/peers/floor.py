"""The floor: Spark reads the topic and writes nothing. No engine on Spark can be faster."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.peers.contract import Task
from benchmarks.peers.spark_stream import kafka_stream, run_until_caught_up, start_session


def main() -> None:
    task = Task.from_json(Path(sys.argv[1]).read_text())
    spark = start_session("floor", task)
    writer = kafka_stream(spark, task).writeStream.format("noop")
    run_until_caught_up(writer, task).write(Path(task.answer_path))
    spark.stop()


if __name__ == "__main__":
    main()
