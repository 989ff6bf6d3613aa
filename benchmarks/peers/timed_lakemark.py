"""lakemark's command line, which measures when the steps of a run begin and how long they take.

``python -m benchmarks.peers.timed_lakemark FILE ARGUMENT…`` runs ``lakemark ARGUMENT…``. At the end
it writes a line for each call of a step to the file: a JSON list of the step, the time at which it
began (seconds since the epoch) and its duration in seconds.
"""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.peers.wrapped_functions import replace_functions

#: Spark calls this for each batch.
CALL = "the call for a batch"
#: Reads the lengths of some records, from which the size of a poll is chosen.
SAMPLE = "sample the lengths of records"
#: Starts Spark's query.
START = "start the query"
#: Builds the query that collects the records.
PLAN = "plan the job that collects"
COLLECT = "run the job, receive its records"
PUBLISH = "publish"
COMMIT = "commit"
SERVE = "table services"
#: The stream runs, until its end.
STREAM = "stream"

FUNCTIONS = {
    STREAM: ("streamer.loop", "StreamLoop._stream"),
    SAMPLE: ("streamer.sources.kafka", "KafkaSource.poll_records"),
    START: ("pyspark.sql.streaming.readwriter", "DataStreamWriter.start"),
    CALL: ("streamer.stream_batches", "StreamBatches.on_batch"),
    PLAN: ("sinks.hudi.collect", "_omit_large_records"),
    COLLECT: ("sinks.hudi.collect", "collect_arrow"),
    PUBLISH: ("sinks.hudi.sink", "HudiSink.write"),
    COMMIT: ("lakemark.transaction.transaction", "Transaction.commit"),
    SERVE: ("streamer.services", "TableServices.run"),
}


class StepTimes:
    """The calls of all steps, in the order in which they ended."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, float, float]] = []

    def measure(self, step: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, which also notes its calls."""

        @functools.wraps(function)
        def measured(*args: Any, **kwargs: Any) -> Any:
            began_s = time.time()
            try:
                return function(*args, **kwargs)
            finally:
                self.calls.append((step, began_s, time.time() - began_s))

        return measured


def main() -> None:
    report, times = Path(sys.argv.pop(1)), StepTimes()
    replace_functions(FUNCTIONS, times.measure)
    sys.argv[0] = "lakemark"
    try:
        sys.exit(import_module("lakemark.__main__").main())
    finally:
        report.write_text("".join(json.dumps(call) + "\n" for call in times.calls))


if __name__ == "__main__":
    main()
