"""A table that Apache Hudi writes step by step, with a record of the steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark import InheritableThread
from pyspark.sql import DataFrame, SparkSession

from tests.golden.make.gate import rows_behind
from tests.golden.make.options import Options
from tests.golden.make.release import CURRENT, Release
from tests.golden.make.rows import COLUMNS, Row
from tests.golden.make.timeline_files import completed_writes, requested_instants, timeline_folder
from tests.waiting import until

#: The name of the table in statements.
SQL_NAME = "golden"

Shape = Callable[[DataFrame], DataFrame]


@dataclass
class TableInMaking:
    """A table and the steps that wrote it.

    Attributes:
        path: the table's folder.
        scratch: a folder for files that are not part of the table.
        options: the options of every write.
        release: the release of Apache Hudi that writes.
        steps: the steps so far, as ``meta.json`` records them.
    """

    spark: SparkSession
    path: Path
    scratch: Path
    options: Options
    release: Release
    steps: list[object] = field(default_factory=list)

    def write(
        self,
        operation: str,
        rows: Sequence[Row],
        columns: str = COLUMNS,
        shape: Shape | None = None,
        options: Options | None = None,
    ) -> None:
        """Commit rows; the first commit creates the table. ``shape`` changes the frame of rows."""
        frame = self.spark.createDataFrame(list(rows), columns)
        self._record(operation, options)
        self._save(operation, frame if shape is None else shape(frame), options or {})

    def write_that_fails(self, rows: Sequence[Row], options: Options | None = None) -> None:
        """Run an upsert that writes its files and fails before it commits, as if it had died."""
        refusal = "select count(*) from <TABLE_NAME>#-1"
        validator = {
            "hoodie.precommit.validators": (
                "org.apache.hudi.client.validator.SqlQuerySingleResultPreCommitValidator"
            ),
            "hoodie.precommit.validators.single.value.sql.queries": refusal,
            **(options or {}),
        }
        try:
            self.write("upsert", rows, options=validator)
        except Exception as error:
            if "alidat" not in str(error):
                raise
        else:
            message = f"{self.path}: the write was not refused"
            raise AssertionError(message)

    @contextmanager
    def held_write(self, rows: Sequence[Row], options: Options | None = None) -> Iterator[None]:
        """Run an upsert whose instant is requested before the block and completes after it."""
        gate = self.scratch / f"gate-{len(self.steps)}"
        frame = rows_behind(self.spark, gate, rows, COLUMNS)
        earlier = requested_instants(self.path)
        errors: list[BaseException] = []
        writer = InheritableThread(
            target=_keeping_errors(lambda: self._save("upsert", frame, options or {}), errors)
        )
        self.steps.append(["begin", "upsert"])
        writer.start()
        try:
            until(
                lambda: bool(errors) or requested_instants(self.path) > earlier,
                "an instant",
                within_s=300,
            )
            yield
        finally:
            gate.touch()
            writer.join()
        self.steps.append(["end", "upsert"])
        for error in errors:
            raise error

    def sql(self, statement: str, options: Options | None = None) -> None:
        """Run a statement with the table's options; it names the table ``{table}``."""
        statement = statement.format(table=SQL_NAME)
        self.steps.append(["sql", statement])
        settings = {**self.options, **(options or {})}
        for key, value in settings.items():
            self.spark.conf.set(key, value)
        try:
            self.spark.sql(f"CREATE TABLE {SQL_NAME} USING hudi LOCATION '{self.path}'")
            self.spark.sql(statement).collect()
        finally:
            self.spark.sql(f"DROP TABLE IF EXISTS {SQL_NAME}")
            for key in settings:
                self.spark.conf.unset(key)

    def schedule_log_compaction(self, options: Options) -> None:
        """Plan a log compaction without executing it."""
        self.steps.append("schedule log compaction")
        with self._write_client(options) as client:
            nothing = self._jvm.org.apache.hudi.common.util.Option.empty()
            planned = client.scheduleLogCompaction(nothing)
        assert planned.isPresent(), "nothing to compact"

    def roll_back_last_write(self) -> None:
        """Roll back the last completed write."""
        self.steps.append("roll back the last write")
        with self._write_client({}) as client:
            assert client.rollback(self.last_write())

    def last_write(self, back: int = 1) -> str:
        """Return the requested time of the last completed write, or of one before it."""
        return completed_writes(self.path)[-back].requested_at

    def forget_completion(self) -> None:
        """Delete the completed file of the last write, as if its writer died on its last step."""
        last = completed_writes(self.path)[-1]
        (timeline_folder(self.path) / last.file_name).unlink()
        self.steps.append("the writer dies before it completes the instant")

    def _save(self, operation: str, frame: DataFrame, options: Options) -> None:
        writer = frame.write.format("hudi").mode("append").options(**{**self.options, **options})
        writer.option("hoodie.datasource.write.operation", operation).save(str(self.path))

    def _record(self, operation: str, options: Options | None) -> None:
        self.steps.append([operation, dict(options)] if options else operation)

    @property
    def _jvm(self) -> Any:
        return self.spark._jvm

    @contextmanager
    def _write_client(self, options: Options) -> Iterator[Any]:
        client = self._new_client({**self.options, **options})
        try:
            yield client
        finally:
            client.close()

    def _new_client(self, options: Options) -> Any:
        if self.release is not CURRENT:
            return self._jvm.org.apache.hudi.DataSourceUtils.createHoodieClient(
                self.spark.sparkContext._jsc,
                None,
                str(self.path),
                self.options["hoodie.table.name"],
                dict(options),
            )
        to_scala = self._jvm.org.apache.spark.api.python.PythonUtils.toScalaMap
        return self._jvm.org.apache.hudi.HoodieCLIUtils.createHoodieWriteClient(
            self.spark._jsparkSession,
            str(self.path),
            to_scala(options),
            self._jvm.scala.Option.empty(),
        )


def _keeping_errors(action: Callable[[], None], errors: list[BaseException]) -> Callable[[], None]:
    def run() -> None:
        try:
            action()
        except BaseException as error:
            errors.append(error)

    return run
