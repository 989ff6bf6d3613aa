"""Apache Hudi behind a pipe: one Spark session that answers JSON lines until its input ends.

A request is ``{"operation": name, "arguments": {…}}``, its answer ``{"ok": …}`` or
``{"error": {"kind": …, "message": …}}``; the first line reports that the session is ready. Rows
are passed in Parquet files, never in the lines. Standard output is only for answers: the output of
Spark and Java is redirected to standard error.

Runs with pyspark 3.5, because Apache Hudi 1.2.0 supports it:
``python -m tests.interop.oracle_server``. The time zone of the JVM is UTC unless a test sets
another one, because some of Hudi's procedures name instants in the zone of the JVM, whatever zone
the table has.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from streamer import class_archive
from streamer.toolchain import cache_home, find_java, find_spark, resolve
from tests.interop.apache_lock import count_under_lock
from tests.interop.key_places import place_keys
from tests.interop.metadata_checks import find_differences, utilities_jars

HUDI_COORDINATE = "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0"

# Hudi measures objects with JOL, which would try for seconds to attach to its own process
JAVA_SETTINGS = (
    "-Duser.timezone=UTC",
    "-Djol.skipDynamicAttach=true",
    "-Djol.skipHotspotSAAttach=true",
    # Kryo needs it to send the bloom filters of a metadata table to tasks
    "--add-opens=java.base/java.util.concurrent.locks=ALL-UNNAMED",
)

#: Settings that any Spark session needs to read and write Hudi tables.
HUDI_SETTINGS = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
    "spark.driver.extraJavaOptions": " ".join(JAVA_SETTINGS),
}

_ORACLE_SETTINGS = {
    **HUDI_SETTINGS,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.avro.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.avro.datetimeRebaseModeInWrite": "CORRECTED",
    # parquet-avro's default, two-level lists, cannot hold a null element
    "spark.hadoop.parquet.avro.write-old-list-structure": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

#: Apache Hudi divides much of its work into 60 to 200 tasks by default, even if there are ten rows.
#: Without these settings, its tasks took most of the time of a query or write of a small table.
_FEW_TASKS = dict.fromkeys(
    [
        "hoodie.global.index.reconcile.parallelism",
        "hoodie.global.simple.index.parallelism",
        "hoodie.simple.index.parallelism",
        "hoodie.finalize.write.parallelism",
        "hoodie.markers.delete.parallelism",
        "hoodie.rollback.parallelism",
        "hoodie.file.listing.parallelism",
        "hoodie.metadata.max.init.parallelism",
        "hoodie.metadata.index.bloom.filter.parallelism",
        "hoodie.metadata.index.column.stats.parallelism",
        "hoodie.metadata.index.partition.stats.parallelism",
        "hoodie.metadata.index.secondary.parallelism",
        "hoodie.metadata.record.preparation.parallelism",
        "hoodie.metadata.repartition.default.partitions",
        "hoodie.metadata.repartition.min.partitions.threshold",
    ],
    "2",
)

Options = Mapping[str, str]


def main() -> None:
    """Start the session, report that, and answer requests until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--driver-memory", default="2g")
    parser.add_argument("--timezone", default="UTC")
    arguments = parser.parse_args()
    answers = claim_standard_output()
    hudi = ApacheHudi(start_session(arguments.driver_memory, arguments.timezone))
    send(answers, {"ok": {"spark": hudi.spark.version, "hudi": HUDI_COORDINATE}})
    for line in sys.stdin:
        send(answers, answer(hudi, json.loads(line)))
    hudi.spark.stop()


def claim_standard_output() -> TextIO:
    """Reserve standard output for the answers, and redirect all other output to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def start_session(
    driver_memory: str, timezone: str, further: Mapping[str, str] | None = None
) -> SparkSession:
    """Start a local session of two threads that can read and write Apache Hudi's tables."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    jars = [*resolve([HUDI_COORDINATE], cache_home() / "jars"), *utilities_jars()]
    builder = SparkSession.builder.master("local[2]").appName("oracle")
    builder = builder.config("spark.jars", ",".join(map(str, jars)))
    for key, value in {**_ORACLE_SETTINGS, **(further or {})}.items():
        builder = builder.config(key, value)
    # Unpacked and shuffled files are deleted with its folder, even if the process is killed.
    own = [
        f"-Duser.timezone={timezone}",
        shlex.quote(f"-Djava.io.tmpdir={Path.cwd()}"),
        # Most code runs only a few times, so that optimizing it takes longer than it saves.
        *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
        # Without the archive (``make archive-spark35``), the JVM takes 9 s of CPU time longer.
        class_archive.java_options(find_java(), find_spark()),
    ]
    java_options = " ".join([*JAVA_SETTINGS, *own])
    builder = builder.config("spark.driver.extraJavaOptions", java_options)
    spark = builder.config("spark.driver.memory", driver_memory).getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    for key, value in _FEW_TASKS.items():  # for SQL; other operations do not read them here
        spark.conf.set(key, value)
    _load_metadata_payload(spark)
    return spark


def _load_metadata_payload(spark: SparkSession) -> None:
    """Load the class of the metadata table's records before any other code uses their schema.

    If a process of Apache Hudi 1.2.0 begins with a compaction of a metadata table, it cannot write
    column statistics afterwards ("Index 9 out of bounds for length 7"). This happens to tables that
    only Apache has written, too. The class compares schemas by identity, and its cache then already
    has another copy of the schema.
    """
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    jvm.java.lang.Class.forName("org.apache.hudi.metadata.HoodieMetadataPayload", True, loader)


def send(answers: TextIO, reply: Mapping[str, object]) -> None:
    answers.write(json.dumps(reply) + "\n")
    answers.flush()


def answer(hudi: ApacheHudi, request: Mapping[str, Any]) -> dict[str, object]:
    """Answer one request; an error of Hudi is an answer, too."""
    operation: Callable[..., object] = hudi.operations[request["operation"]]
    try:
        return {"ok": operation(**request["arguments"])}
    except Exception as error:
        return {"error": {"kind": type(error).__name__, "message": describe(error)}}


def describe(error: Exception) -> str:
    """Describe an error; a Java error as one line for each cause, without the stacks."""
    if not isinstance(error, Py4JJavaError):
        return str(error)
    causes, cause = [], error.java_exception
    while cause is not None:
        causes.append(str(cause.toString()).partition("\n")[0])
        cause = cause.getCause()
    return "\n  caused by ".join(causes)


class ApacheHudi:
    """The operations of Apache Hudi that a test may call; each public method is one of them."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._jvm: Any = spark._jvm
        self._jsc: Any = spark.sparkContext._jsc
        self.operations: dict[str, Callable[..., object]] = {
            "read": self.read,
            "write": self.write,
            "sql": self.sql,
            "compact": self.compact,
            "compact_logs": self.compact_logs,
            "rollback": self.rollback,
            "timeline": self.timeline,
            "commit_metadata": self.commit_metadata,
            "table_config": self.table_config,
            "count_under_lock": partial(count_under_lock, spark),
            "place_keys": partial(place_keys, spark._jvm),
            "metadata_differences": partial(find_differences, spark),
        }

    def read(self, path: str, query_type: str, options: Options, answer_path: str) -> None:
        """Write the rows of a query, meta columns included, to ``answer_path``."""
        reader = self.spark.read.format("hudi").option("hoodie.datasource.query.type", query_type)
        save_rows(reader.options(**{**_FEW_TASKS, **options}).load(path), answer_path)
        # An incremental query of Apache Hudi turns it off for the whole session. Without it,
        # filters of later queries do not find -0.0 as 0.
        self.spark.conf.unset("spark.sql.parquet.enableVectorizedReader")

    def write(self, path: str, rows_path: str, operation: str, options: Options, mode: str) -> None:
        """Write the rows in ``rows_path`` as one commit; the first one creates the table."""
        writer = self.spark.read.parquet(rows_path).write.format("hudi").mode(mode)
        writer = writer.options(**{**_FEW_TASKS, **options})
        writer.option("hoodie.datasource.write.operation", operation).save(path)

    def sql(self, statement: str, answer_path: str | None = None) -> None:
        """Run a statement, and write the rows of a query or ``CALL`` to ``answer_path``."""
        rows = self.spark.sql(statement)
        if answer_path is not None:
            save_rows(rows, answer_path)

    def compact(
        self, path: str, operation: str, instant: str | None, options: Options
    ) -> list[str]:
        """Plan a compaction, run pending ones or one by name, or both; return their instants."""
        client = self._write_client(path, options)
        try:
            if operation == "run":
                instants = [instant] if instant else self._pending_compactions(path)
            else:
                planned = client.scheduleCompaction(
                    self._jvm.org.apache.hudi.common.util.Option.empty()
                )
                instants = [planned.get()] if planned.isPresent() else []
            if operation != "schedule":
                for each in instants:
                    client.compact(each, True)
            return instants
        finally:
            client.close()

    def compact_logs(
        self, path: str, operation: str, instant: str | None, options: Options
    ) -> list[str]:
        """Plan a log compaction, or run one by name; return its instant, if any."""
        client = self._write_client(path, options)
        try:
            if operation == "run":
                client.logCompact(instant, True)
                return [] if instant is None else [instant]
            nothing = self._jvm.org.apache.hudi.common.util.Option.empty()
            planned = client.scheduleLogCompaction(nothing)
            return [planned.get()] if planned.isPresent() else []
        finally:
            client.close()

    def rollback(self, path: str, instant: str, options: Options) -> bool:
        """Roll back an instant, completed or not; return whether anything was rolled back."""
        client = self._write_client(path, options)
        try:
            # a writer other than Spark leaves no markers for its files
            client.getConfig().setValue("hoodie.rollback.using.markers", "false")
            return bool(client.rollback(instant))
        finally:
            client.close()

    def timeline(self, path: str) -> list[dict[str, str | None]]:
        """List the active timeline as Hudi parses it, in order of requested time."""
        instants = self._meta_client(path).getActiveTimeline().getInstants()
        return [
            {
                "requested_at": instant.requestedTime(),
                "action": instant.getAction(),
                "state": instant.getState().name().lower(),
                "completed_at": instant.getCompletionTime(),
            }
            for instant in instants
        ]

    def commit_metadata(self, path: str, instant: str) -> object:
        """Return the metadata of a completed commit, as the JSON that Hudi prints."""
        timeline = self._meta_client(path).getActiveTimeline().filterCompletedInstants()
        for each in timeline.getInstants():
            if each.requestedTime() == instant:
                return json.loads(timeline.readCommitMetadata(each).toJsonString())
        message = f"no completed instant {instant} on the active timeline of {path}"
        raise LookupError(message)

    def table_config(self, path: str) -> dict[str, str]:
        """Return ``hoodie.properties`` as Hudi reads it, with defaults of the table's version."""
        return dict(self._meta_client(path).getTableConfig().getProps())

    def _meta_client(self, path: str) -> Any:
        hudi = self._jvm.org.apache.hudi
        conf = hudi.hadoop.fs.HadoopFSUtils.getStorageConfWithCopy(self._jsc.hadoopConfiguration())
        builder = hudi.common.table.HoodieTableMetaClient.builder()
        return builder.setConf(conf).setBasePath(path).build()

    def _write_client(self, path: str, options: Options) -> Any:
        """Open a client that does not upgrade the table."""
        version = self._meta_client(path).getTableConfig().getTableVersion().versionCode()
        kept = {"hoodie.write.table.version": str(version), "hoodie.write.auto.upgrade": "false"}
        to_scala = self._jvm.org.apache.spark.api.python.PythonUtils.toScalaMap
        return self._jvm.org.apache.hudi.HoodieCLIUtils.createHoodieWriteClient(
            self.spark._jsparkSession,
            path,
            to_scala({**_FEW_TASKS, **kept, **options}),
            self._jvm.scala.Option.empty(),
        )

    def _pending_compactions(self, path: str) -> list[str]:
        pending = self._meta_client(path).getActiveTimeline().filterPendingCompactionTimeline()
        return [instant.requestedTime() for instant in pending.getInstants()]


def save_rows(rows: DataFrame, path: str) -> None:
    rows.write.mode("overwrite").parquet(path)


if __name__ == "__main__":
    main()
