"""Apache Hudi executes the pending compactions with its own write client."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.peers.change_contract import ChangeTask
from benchmarks.peers.read_contract import ReadAnswer, change_each, peak_memory_bytes
from benchmarks.peers.spark_read import stored_sums
from benchmarks.peers.spark_session import local_session
from streamer.toolchain import cache_home, resolve
from tests.interop.oracle_server import HUDI_COORDINATE, HUDI_SETTINGS, ApacheHudi

_OPTIONS = {
    "hoodie.metadata.enable": "false",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
}


def main() -> None:
    task = ChangeTask.from_json(Path(sys.argv[1]).read_text())
    jars = resolve([HUDI_COORDINATE], cache_home() / "jars")
    spark = local_session("compact", task.driver_memory, jars, HUDI_SETTINGS)
    hudi = ApacheHudi(spark)

    def compact(path: str) -> None:
        done = hudi.compact(path, "run", None, _OPTIONS)
        assert len(done) == 1, f"{path} has {len(done)} pending compactions"

    java = int(spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    reading = change_each(
        task.name,
        task.tables,
        compact,
        lambda path: stored_sums(spark, path, "read_optimized"),
        java,
    )
    ReadAnswer((reading,), peak_memory_bytes(java)).write(Path(task.answer_path))
    spark.stop()


if __name__ == "__main__":
    main()
