"""The client of ``oracle_server``, which runs Apache Hudi itself in its own environment."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from lakemark.storage import StorageLocation
from tests.interop.key_places import KeyPlaces
from tests.waiting import until

_ROOT = Path(__file__).resolve().parents[2]
_SERVER = "tests.interop.oracle_server"

QueryType = Literal["snapshot", "read_optimized", "incremental"]
WriteOperation = Literal[
    "upsert", "insert", "bulk_insert", "delete", "insert_overwrite", "insert_overwrite_table"
]
CompactionStep = Literal["schedule", "run", "schedule_and_run"]

#: Options of a write that cleans and archives as early as possible.
CLEANS_AND_ARCHIVES = {
    "hoodie.clean.automatic": "true",
    "hoodie.clean.commits.retained": "3",
    "hoodie.archive.automatic": "true",
    "hoodie.keep.min.commits": "4",
    "hoodie.keep.max.commits": "5",
    "hoodie.compact.inline.max.delta.commits": "2",
    "hoodie.metadata.compact.max.delta.commits": "2",
}


class OracleUnavailable(Exception):
    """The environment of Apache Hudi is missing; the message says what it needs."""


class OracleError(Exception):
    """Apache Hudi refused, or its process ended."""


@dataclass(frozen=True, slots=True)
class OracleInstant:
    """One action as Apache Hudi parses it from the timeline's file names."""

    requested_at: str
    action: str
    state: str
    completed_at: str | None


@dataclass(frozen=True, slots=True)
class ApacheTable:
    """The settings of a table of Apache Hudi: bucket index, no automatic services, UTC.

    Attributes:
        record_key, partition, ordering: columns; several keys or partitions are allowed. Without
            a key, Apache Hudi generates automatic keys.
        bucket_count: file groups per partition; must equal what the other writer uses.
        has_metadata: whether Hudi maintains its metadata table.
        log_format: the format of data blocks in log files.
        extra: further options, which override all of the above.
    """

    name: str
    record_key: Sequence[str]
    partition: Sequence[str] = ()
    ordering: Sequence[str] = ()
    table_type: Literal["MERGE_ON_READ", "COPY_ON_WRITE"] = "MERGE_ON_READ"
    version: int = 9
    bucket_count: int = 2
    has_metadata: bool = False
    log_format: Literal["parquet", "avro"] = "parquet"
    extra: Mapping[str, str] = field(default_factory=dict)

    def write_options(self) -> dict[str, str]:
        """Return the options of a DataFrame write."""
        return {
            "hoodie.table.name": self.name,
            "hoodie.datasource.write.table.type": self.table_type,
            "hoodie.datasource.write.partitionpath.field": ",".join(self.partition),
            "hoodie.index.type": "BUCKET",
            "hoodie.bucket.index.num.buckets": str(self.bucket_count),
            "hoodie.logfile.data.block.format": self.log_format,
            "hoodie.metadata.enable": str(self.has_metadata).lower(),
            **self.version_options,
            "hoodie.table.timeline.timezone": "UTC",
            "hoodie.compact.inline": "false",
            "hoodie.compact.schedule.inline": "false",
            "hoodie.clean.automatic": "false",
            "hoodie.archive.automatic": "false",
            **(
                {"hoodie.datasource.write.recordkey.field": ",".join(self.record_key)}
                if self.record_key
                else {}
            ),
            **({"hoodie.table.ordering.fields": ",".join(self.ordering)} if self.ordering else {}),
            **self.extra,
        }

    @property
    def version_options(self) -> dict[str, str]:
        """Return the options that keep commands of Hudi from upgrading the table to version 9."""
        return {
            "hoodie.write.table.version": str(self.version),
            "hoodie.write.auto.upgrade": "false",
        }


def oracle_python() -> Path:
    """Find the interpreter of the environment with pyspark 3.5.

    Raises:
        OracleUnavailable: there is none.
    """
    named = os.environ.get("LAKEMARK_ORACLE_PYTHON")
    python = Path(named) if named else _ROOT / ".venv-spark35" / "bin" / "python"
    if not python.exists():
        message = (
            f"Apache Hudi needs an environment with pyspark 3.5 at {python}: "
            "install requirements/spark-3.5.lock there, or name its interpreter in "
            "LAKEMARK_ORACLE_PYTHON"
        )
        raise OracleUnavailable(message)
    return python


class Oracle:
    """One process of Apache Hudi that serves one request at a time; close it at the end.

    Args:
        folder: its own scratch folder, for the rows of requests and for the log of the process.
        driver_memory: the heap of the JVM.
        environ: the environment variables of the process.
        timezone: default time zone of the JVM; instants of a table in local time use it.
    """

    def __init__(
        self,
        folder: Path,
        driver_memory: str = "2g",
        environ: Mapping[str, str] = os.environ,
        timezone: str = "UTC",
    ) -> None:
        self._folder = folder
        self._numbers = count()
        self._log_path = folder / "oracle.log"
        with self._log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *(str(oracle_python()), "-m", _SERVER),
                    *("--driver-memory", driver_memory, "--timezone", timezone),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=folder,
                env={**environ, "PYTHONPATH": str(_ROOT)},
            )
        self._receive("start")

    def close(self) -> None:
        """Stop the process and wait for its end."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def read(
        self,
        path: Path | str,
        query_type: QueryType = "snapshot",
        options: Mapping[str, str] | None = None,
    ) -> pa.Table:
        """Read all columns of a query, meta columns included, in any order of rows.

        ``options`` are Hudi's own, such as ``as.of.instant``,
        ``hoodie.datasource.read.begin.instanttime`` or
        ``hoodie.datasource.query.incremental.format=cdc``.
        """
        answer = self._new_path()
        self._ask(
            "read",
            path=str(path),
            query_type=query_type,
            options=dict(options or {}),
            answer_path=str(answer),
        )
        return _take_rows(answer)

    def write(
        self,
        path: Path | str,
        rows: pa.Table,
        table: ApacheTable,
        operation: WriteOperation = "upsert",
        options: Mapping[str, str] | None = None,
    ) -> OracleInstant:
        """Commit rows; the first commit creates the table. ``options`` override the table's.

        Returns:
            The completed instant with the latest completion time.
        """
        rows_path = self._new_path()
        pq.write_table(rows, rows_path, coerce_timestamps="us")
        self._ask(
            "write",
            path=str(path),
            rows_path=str(rows_path),
            operation=operation,
            options={**table.write_options(), **(options or {})},
            mode="append",
        )
        rows_path.unlink()
        completed = [i for i in self.timeline(path) if i.completed_at is not None]
        return max(completed, key=lambda instant: instant.completed_at or "")

    def create_table(self, path: Path | str, columns: str, table: ApacheTable) -> None:
        """Create an empty table with SQL; ``columns`` like ``id STRING``."""
        options = table.write_options() | {
            "type": {"MERGE_ON_READ": "mor", "COPY_ON_WRITE": "cow"}[table.table_type],
            "primaryKey": ",".join(table.record_key),
            **({"orderingFields": ",".join(table.ordering)} if table.ordering else {}),
        }
        partitioned = f"PARTITIONED BY ({', '.join(table.partition)})" if table.partition else ""
        properties = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
        self.execute(
            f"CREATE TABLE {table.name} ({columns}) USING hudi {partitioned} "
            f"TBLPROPERTIES ({properties}) LOCATION '{path}'"
        )
        self.execute(f"DROP TABLE {table.name}")

    def delete_where(self, path: Path | str, condition: str, table: ApacheTable) -> None:
        """Run ``DELETE FROM`` of SQL, which deletes records of any ordering value."""
        with self.named(table.name, path), self.settings(table.write_options()):
            self.execute(f"DELETE FROM {table.name} WHERE {condition}")

    def compact(
        self,
        path: Path | str,
        step: CompactionStep = "schedule_and_run",
        *,
        instant: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Plan a compaction, run pending ones, or both; ``instant`` selects a pending one.

        A single delta commit is enough for a plan.

        Returns:
            Requested times of the compactions planned or run.
        """
        defaults = {
            "hoodie.compact.inline.max.delta.commits": "1",
            "hoodie.metadata.enable": "false",
            "hoodie.clean.automatic": "false",
            "hoodie.archive.automatic": "false",
        }
        instants: list[str] = self._ask(
            "compact",
            path=str(path),
            operation=step,
            instant=instant,
            options=defaults | dict(options or {}),
        )
        return instants

    def compact_logs(
        self,
        path: Path | str,
        instant: str | None = None,
        *,
        options: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Run a pending log compaction, or plan one without running it.

        The logs of two commits are enough for a plan.

        Returns:
            The requested time of the log compaction; empty if there is nothing to plan.
        """
        defaults = {
            "hoodie.log.compaction.blocks.threshold": "2",
            "hoodie.metadata.enable": "false",
            "hoodie.clean.automatic": "false",
            "hoodie.archive.automatic": "false",
        }
        instants: list[str] = self._ask(
            "compact_logs",
            path=str(path),
            operation="schedule" if instant is None else "run",
            instant=instant,
            options=defaults | dict(options or {}),
        )
        return instants

    def rollback(
        self, path: Path | str, instant: str, options: Mapping[str, str] | None = None
    ) -> bool:
        """Roll back one instant by listing; return whether there was anything to roll back."""
        defaults = {"hoodie.metadata.enable": "false"}
        return bool(
            self._ask(
                "rollback",
                path=str(path),
                instant=instant,
                options=defaults | dict(options or {}),
            )
        )

    def timeline(self, path: Path | str) -> list[OracleInstant]:
        """Return the active timeline as Apache Hudi parses it."""
        return [OracleInstant(**instant) for instant in self._ask("timeline", path=str(path))]

    def commit_metadata(self, path: Path | str, instant: str) -> dict[str, Any]:
        """Return the metadata of a completed commit, as Hudi's JSON."""
        metadata: dict[str, Any] = self._ask("commit_metadata", path=str(path), instant=instant)
        return metadata

    def table_config(self, path: Path | str) -> dict[str, str]:
        """Return ``hoodie.properties`` as Apache Hudi reads it."""
        config: dict[str, str] = self._ask("table_config", path=str(path))
        return config

    def metadata_differences(self, path: Path | str) -> list[str]:
        """Return how Apache Hudi finds that a metadata table differs from the files of its table.

        See ``tests.interop.metadata_checks``, which also explains how to run the validator itself.
        """
        found: list[str] = self._ask("metadata_differences", path=str(path))
        return found

    def count_under_lock(self, location: StorageLocation, counter: str, times: int) -> None:
        """Increment the number in an S3 object several times, under the lock of the table."""
        self._ask(
            "count_under_lock",
            store=location.options,
            table=location.url,
            counter=counter,
            times=times,
        )

    def place_keys(
        self, record_keys: Sequence[str], fields: Sequence[str], partition_path: str, count: int
    ) -> KeyPlaces:
        """Return where Apache Hudi stores record keys; see ``key_places.place_keys``."""
        places: KeyPlaces = self._ask(
            "place_keys",
            record_keys=list(record_keys),
            fields=list(fields),
            partition_path=partition_path,
            count=count,
        )
        return places

    def execute(self, statement: str) -> None:
        """Run a statement without a result."""
        self._ask("sql", statement=statement)

    def query(self, statement: str) -> pa.Table:
        """Return the rows of a query, or of one of Hudi's procedures (``CALL …``)."""
        answer = self._new_path()
        self._ask("sql", statement=statement, answer_path=str(answer))
        return _take_rows(answer)

    @contextmanager
    def named(self, name: str, path: Path | str) -> Iterator[None]:
        """Register a table under a name for SQL and procedures, for the length of a block."""
        self.execute(f"CREATE TABLE {name} USING hudi LOCATION '{path}'")
        try:
            yield
        finally:
            self.execute(f"DROP TABLE {name}")

    @contextmanager
    def settings(self, options: Mapping[str, str]) -> Iterator[None]:
        """Change settings of the session, for the length of a block."""
        try:
            for key, value in options.items():
                self.execute(f"SET {key} = {value}")
            yield
        finally:
            for key in options:
                self.execute(f"RESET {key}")

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Suspend the process for the length of a block, at any point of its work."""
        pid = self._process.pid
        (java,) = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        os.kill(java, signal.SIGSTOP)
        try:
            until(lambda: _is_stopped(java), "the process of Apache Hudi is suspended")
            yield
        finally:
            os.kill(java, signal.SIGCONT)

    def _ask(self, operation: str, /, **arguments: object) -> Any:
        assert self._process.stdin is not None
        request = json.dumps({"operation": operation, "arguments": arguments})
        try:
            self._process.stdin.write(request + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._death(operation) from None
        return self._receive(operation)

    def _receive(self, operation: str) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._death(operation)
        reply = json.loads(line)
        if "error" in reply:
            error = reply["error"]
            message = f"{operation}: {error['kind']}: {error['message']}\n(log: {self._log_path})"
            raise OracleError(message)
        return reply["ok"]

    def _death(self, operation: str) -> OracleError:
        tail = self._log_path.read_text(errors="replace")[-4000:]
        return OracleError(f"{operation}: Apache Hudi's process ended; its log ends with\n{tail}")

    def _new_path(self) -> Path:
        return self._folder / f"rows-{next(self._numbers)}.parquet"


def _is_stopped(process: int) -> bool:
    """Return whether all threads of a process are suspended: each first ends its system call."""
    states = (one.read_text() for one in Path(f"/proc/{process}/task").glob("*/stat"))
    return all(state.rpartition(")")[2].split()[0] == "T" for state in states)


def _take_rows(path: Path) -> pa.Table:
    rows = pq.read_table(path, partitioning=None).replace_schema_metadata(None)
    shutil.rmtree(path)
    return rows
