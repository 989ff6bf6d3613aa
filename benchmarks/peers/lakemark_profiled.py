"""lakemark as in ``lakemark_stream``, with the CPU time of its steps in ``steps.jsonl``."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.peers import lakemark_stream
from benchmarks.peers.contract import Task

#: The name of the report in the scratch folder of the task.
STEPS_FILE = "steps.jsonl"


def main() -> None:
    task = Task.from_json(Path(sys.argv[1]).read_text())
    report = str(Path(task.scratch_path) / STEPS_FILE)
    program = [sys.executable, "-m", "benchmarks.peers.profiled_lakemark", report]
    lakemark_stream.run(task, program, sys.argv[2:])


if __name__ == "__main__":
    main()
