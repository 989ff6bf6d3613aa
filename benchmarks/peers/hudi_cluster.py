"""Apache Hudi clusters copies of a table, with its procedure ``run_clustering``."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.peers.change_contract import ChangeTask
from benchmarks.peers.lakemark_cluster import SORTED_BY
from benchmarks.peers.read_contract import ReadAnswer, change_each, peak_memory_bytes
from benchmarks.peers.spark_read import stored_sums
from benchmarks.peers.spark_session import local_session
from streamer.toolchain import cache_home, resolve
from tests.interop.oracle_server import HUDI_COORDINATE, HUDI_SETTINGS

_OPTIONS = {
    "hoodie.index.type": "SIMPLE",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
}


def main() -> None:
    task = ChangeTask.from_json(Path(sys.argv[1]).read_text())
    jars = resolve([HUDI_COORDINATE], cache_home() / "jars")
    spark = local_session("cluster", task.driver_memory, jars, HUDI_SETTINGS)
    for name, value in _OPTIONS.items():
        spark.conf.set(name, value)

    def cluster(path: str) -> None:
        call = f"CALL run_clustering(path => '{path}', order => '{SORTED_BY}')"
        done = spark.sql(call).collect()
        assert len(done) == 1, f"{path} had {len(done)} clusterings"

    java = int(spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    reading = change_each(
        task.name, task.tables, cluster, lambda path: stored_sums(spark, path, "snapshot"), java
    )
    ReadAnswer((reading,), peak_memory_bytes(java)).write(Path(task.answer_path))
    spark.stop()


if __name__ == "__main__":
    main()
