"""Opens a table for a command that changes it: with its lock, its policies and a task runner."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

from rich.console import Console

from lakemark.config.parquet_settings import PARQUET_DEFAULTS, ParquetSettings
from lakemark.config.property_check import check_allows
from lakemark.config.property_rule import Purpose
from lakemark.errors import InvalidConfig
from lakemark.execution.runner import LazyRunner, LocalRunner, Runner
from lakemark.model.rollback_plan import RollbackPlan
from lakemark.operations.open_table import OpenTable
from lakemark.operations.write_checks import check_convertible, check_maintainable
from lakemark.services.cleaning_plan import CleaningPolicy, Retention
from lakemark.storage import canonical_url
from lakemark.timeline.locks.open_lock import LockProviderName
from lakemark.transaction.instant_files import names_of
from lakemark.transaction.multi_writer import LONGEST_CLOCK_SKEW_MS
from streamer.commands.location import open_named_table
from streamer.commands.table import Facts, show_rows
from streamer.config.concurrency import ConcurrencyConfig
from streamer.config.load import load
from streamer.config.pipeline import PipelineConfig
from streamer.config.secrets import build_redactor
from streamer.table_setup import coordination_of

_COMMITS_RETAINED = 10


def open_for_service(arguments: argparse.Namespace, mergers: Sequence[str] = ()) -> OpenTable:
    """Open the named table for a table service.

    Raises:
        TableNotFound: there is no table at this path.
        Unsupported: lakemark does not maintain this kind of table.
        TimelineZoneUnknown: the timeline is in local time, and its time zone is not known.
    """
    table = open_as_writer(arguments, mergers)
    check_maintainable(table)
    _check_zone(table, arguments)
    return table


def open_for_version_change(
    arguments: argparse.Namespace, mergers: Sequence[str] = ()
) -> OpenTable:
    """Open the named table to change its version, which may be one that lakemark only reads.

    Raises:
        TableNotFound, Unsupported, TimelineZoneUnknown: as for ``open_for_service``.
    """
    table = open_as_writer(arguments, mergers)
    check_convertible(table)
    _check_zone(table, arguments)
    return table


def open_ignoring_metadata_table(arguments: argparse.Namespace) -> OpenTable:
    """Open the table for a command that drops or ignores the metadata table."""
    table = open_as_writer(arguments)
    bare = table.properties.without_metadata_table()
    check_allows(bare, Purpose.MAINTAIN, table.location.url)
    _check_zone(table, arguments)
    return table


def open_as_writer(arguments: argparse.Namespace, mergers: Sequence[str] = ()) -> OpenTable:
    """Open the named table with the lock that its writers use, as one of several writers.

    A command always works in multi-writer mode: it acquires the lock, waits for the clock skew,
    and emits a heartbeat while it runs.
    """
    config = pipeline_of(arguments)
    given = {option.partition("=")[0] for option in arguments.storage}
    known = {} if config is None else config.table.location().options
    options = [f"{name}={value}" for name, value in known.items() if name not in given]
    return open_named_table(
        arguments.table,
        [*options, *arguments.storage],
        mergers,
        _timezone(arguments, config),
        coordination_of(_concurrency(arguments, config), of_letters=_is_letters(arguments, config)),
        LazyRunner(lambda: chosen_runner(arguments)),
        _base_files(arguments, config),
    )


def _timezone(arguments: argparse.Namespace, config: PipelineConfig | None) -> str | None:
    """Return the zone setting of the named table, if any; dead-letter tables are always in UTC."""
    if arguments.timeline_timezone is not None or config is None:
        named: str | None = arguments.timeline_timezone
        return named
    return config.table.timeline_timezone if _is_main(arguments, config) else None


def _base_files(arguments: argparse.Namespace, config: PipelineConfig | None) -> ParquetSettings:
    """Return how the pipeline writes the named table; dead-letter tables use the defaults."""
    if config is None or not _is_main(arguments, config):
        return PARQUET_DEFAULTS
    return config.base_files.parquet_settings()


def _is_letters(arguments: argparse.Namespace, config: PipelineConfig | None) -> bool:
    """Return whether the named table is the dead-letter table of the named pipeline."""
    return config is not None and not _is_main(arguments, config)


def _is_main(arguments: argparse.Namespace, config: PipelineConfig) -> bool:
    """Return whether the named table is the pipeline's table, and not its dead-letter table."""
    return canonical_url(arguments.table) == canonical_url(config.table.path)


def _check_zone(table: OpenTable, arguments: argparse.Namespace) -> None:
    """Check that the time zone is known, unless the command only plans and needs no instant times.

    Raises:
        TimelineZoneUnknown: the zone of the timeline is not known.
    """
    if getattr(arguments, "step", None) != "plan":
        table.store.clock.check()


def pipeline_of(arguments: argparse.Namespace) -> PipelineConfig | None:
    """Return the pipeline that ``--config`` names; None without this option.

    Raises:
        ConfigError: the file is not valid.
        InvalidConfig: the pipeline does not write the named table.
    """
    if arguments.config is None:
        return None
    config = load(arguments.config)
    arguments.redacted = build_redactor(config)
    written = [path for path in (config.table.path, config.dead_letters.path) if path]
    if canonical_url(arguments.table) not in map(canonical_url, written):
        message = (
            f"pipeline {arguments.config} writes {' and '.join(written)}, not {arguments.table}; "
            "name one of its tables, or the pipeline of this table"
        )
        raise InvalidConfig(message)
    return config


def _concurrency(arguments: argparse.Namespace, config: PipelineConfig | None) -> ConcurrencyConfig:
    configured = ConcurrencyConfig() if config is None else config.concurrency
    lock = {"provider": arguments.lock, "expire_minutes": arguments.lock_expire_minutes}
    given: dict[str, object] = {name: value for name, value in lock.items() if value is not None}
    if arguments.lock not in (None, configured.lock.provider):
        given["options"] = {}  # those of the pipeline belong to its provider
    changed: dict[str, object] = {
        "mode": "multi_writer",
        "lock": configured.lock.model_copy(update=given),
    }
    if arguments.clock_skew_ms is not None:
        changed["clock_skew_ms"] = _possible_skew_ms(arguments.clock_skew_ms)
    applied = configured.model_copy(update=changed)
    if applied.lock.provider == LockProviderName.IN_PROCESS:
        message = (
            f"pipeline {arguments.config} keeps the table's lock in its own memory, where other "
            "processes do not see it; stop the pipeline and repeat the command with --lock storage"
        )
        raise InvalidConfig(message)
    return applied


def _possible_skew_ms(skew_ms: int) -> int:
    if skew_ms > LONGEST_CLOCK_SKEW_MS:
        message = (
            f"--clock-skew-ms {skew_ms}: every commit holds the table's lock for that long, so at "
            f"most {LONGEST_CLOCK_SKEW_MS} ms are accepted; synchronise the clocks (NTP)"
        )
        raise InvalidConfig(message)
    return skew_ms


def chosen_runner(arguments: argparse.Namespace) -> Runner:
    """Return the runner that ``--runner`` names.

    Raises:
        SessionFailed: Spark did not start.
    """
    if getattr(arguments, "runner", "local") == "local":
        return LocalRunner()
    # Imported here, because only --runner spark needs Spark.
    from streamer.cluster_runner import ClusterRunner
    from streamer.session import plain_session

    return ClusterRunner(plain_session("lakemark table service"))


def cleaning_policy(arguments: argparse.Namespace) -> CleaningPolicy:
    """Return the policy of the ``--retain-…`` options, or of the pipeline. Default: 10 commits."""
    if arguments.retain_hours:
        return CleaningPolicy(Retention.HOURS, hours=arguments.retain_hours)
    if arguments.retain_versions:
        return CleaningPolicy(Retention.FILE_VERSIONS, file_versions=arguments.retain_versions)
    config = pipeline_of(arguments)
    if arguments.retain_commits is None and config is not None:
        return config.cleaning.policy_of_table()
    return CleaningPolicy(commits=arguments.retain_commits or _COMMITS_RETAINED)


def show_work(rows: Sequence[Facts], arguments: argparse.Namespace, if_empty: str) -> None:
    """Print the plan or the result of a command, and a note on stderr if nothing was executed.

    Args:
        rows: one row for each change.
        arguments: the command's arguments; their step is ``plan``, ``schedule`` or ``run``.
        if_empty: the text to print instead of rows if there are none.
    """
    show_rows(rows, Console(), arguments.json, if_empty)
    sys.stdout.flush()
    if arguments.step == "plan":
        remedy = "; add --run to execute the plan" if rows else ""
        print(f"nothing was changed{remedy}", file=sys.stderr)
    elif arguments.step == "schedule" and rows:
        print("only the plan was written; --run executes it", file=sys.stderr)


def rows_of_files(instant: str | None, files: Mapping[str, Sequence[str]]) -> list[Facts]:
    """Return one row for each file of an instant's plan.

    Args:
        instant: the instant that keeps or deletes the files; None if it does not exist yet.
        files: the names of the files of each partition.
    """
    return [
        {"instant": instant, "partition": partition, "file": name}
        for partition, names in files.items()
        for name in names
    ]


def file_rows(undone: RollbackPlan) -> list[Facts]:
    """Return one row for each file of the instant to roll back; one row if it has no files."""
    named = [
        (partition, name) for partition, names in names_of(undone.files).items() for name in names
    ]
    return [
        {
            "instant": undone.instant,
            "action": str(undone.action),
            "partition": partition,
            "file": name,
        }
        for partition, name in named or [("", "")]
    ]
