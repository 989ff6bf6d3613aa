"""lakemark's command line, which measures the CPU time of some of its own steps.

``python -m benchmarks.peers.profiled_lakemark FILE ARGUMENT…`` runs ``lakemark ARGUMENT…``. After
each commit it appends a line to the file: a JSON object with the time, and for each step the CPU
time so far in seconds. The CPU time is that of the thread that called the step. If a step calls
another one, only the outer step counts.
"""

from __future__ import annotations

import functools
import json
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.peers.wrapped_functions import replace_functions

#: The function of each step: its module, and its name in the module.
STEPS = {
    "receive the records from Spark": ("sinks.hudi.collect", "collect"),
    "parse JSON": ("transforms.decode.json_block", "BlockReader.parse"),
    "build record keys and partition paths, check values": (
        "transforms.change_builder",
        "ChangeBuilder._build_changes",
    ),
    "divide by bucket": ("lakemark.write.partitioner", "sort_by_bucket"),
    "keep one change for each key": ("lakemark.merge.record_merger", "_EventTimeMerger.fold"),
    "write log blocks": ("lakemark.write.log_file_writer", "LogFileWriter.append"),
    "compaction": ("lakemark.services.compaction", "SliceRewriter.__call__"),
    "commit, including the metadata table": (
        "lakemark.transaction.transaction",
        "Transaction.commit",
    ),
}
_COMMIT = "commit, including the metadata table"


class StepTimes:
    """The CPU time of each step so far, in seconds."""

    def __init__(self, report: Path) -> None:
        self._report = report
        self._used_s: defaultdict[str, float] = defaultdict(float)
        self._lock = threading.Lock()
        self._thread = threading.local()

    def measure(self, step: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, which also measures its CPU time."""

        @functools.wraps(function)
        def measured(*args: Any, **kwargs: Any) -> Any:
            if getattr(self._thread, "is_measuring", False):
                return function(*args, **kwargs)
            self._thread.is_measuring = True
            started_s = time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                self._add(step, time.thread_time() - started_s)
                self._thread.is_measuring = False

        return measured

    def _add(self, step: str, used_s: float) -> None:
        with self._lock:
            self._used_s[step] += used_s
            if step == _COMMIT:
                line = json.dumps({"at_s": time.time(), "used_s": self._used_s})
                with self._report.open("a") as report:
                    report.write(line + "\n")


def main() -> None:
    times = StepTimes(Path(sys.argv.pop(1)))
    replace_functions(STEPS, times.measure)
    sys.argv[0] = "lakemark"
    sys.exit(import_module("lakemark.__main__").main())


if __name__ == "__main__":
    main()
