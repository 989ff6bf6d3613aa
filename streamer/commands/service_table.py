"""What the commands that change a table share: the table they may change, and where work runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

from rich.console import Console

from lakemark.config.property_check import check_allows
from lakemark.config.property_rule import Purpose
from lakemark.errors import InvalidConfig
from lakemark.execution.runner import LazyRunner, LocalRunner, Runner
from lakemark.model.rollback_plan import RollbackPlan
from lakemark.operations.open_table import OpenTable
from lakemark.operations.write_checks import check_maintainable
from lakemark.services.cleaning_plan import CleaningPolicy, Retention
from lakemark.storage import place_of
from lakemark.timeline.lock import LockProvider
from lakemark.transaction.instant_files import names_of
from lakemark.transaction.multi_writer import LONGEST_CLOCK_SKEW_MS
from streamer.commands.location import open_named_table
from streamer.commands.table import Facts, show_rows
from streamer.config.concurrency import ConcurrencyConfig
from streamer.config.load import load
from streamer.config.pipeline import PipelineConfig
from streamer.config.secrets import redaction
from streamer.table_setup import coordination_of

_COMMITS_RETAINED = 10


def open_for_service(arguments: argparse.Namespace, mergers: Sequence[str] = ()) -> OpenTable:
    """The named table, if this project keeps such tables in shape.

    Raises:
        TableNotFound: no table lies there.
        Unsupported: a table that this project does not write.
        TimelineZoneUnknown: one in local time whose zone is not known.
    """
    table = open_beside_writers(arguments, mergers)
    check_maintainable(table)
    _check_zone(table, arguments)
    return table


def open_whatever_indexes(arguments: argparse.Namespace) -> OpenTable:
    """The same for what leaves a metadata table alone, or drops it."""
    table = open_beside_writers(arguments)
    bare = table.properties.without_metadata_table()
    check_allows(bare, Purpose.MAINTAIN, table.location.url)
    _check_zone(table, arguments)
    return table


def open_beside_writers(arguments: argparse.Namespace, mergers: Sequence[str] = ()) -> OpenTable:
    """The named table, whatever it is, with the lock and the regard for others of its writers.

    Whatever they are set to, a command is one more of them: it takes their lock, waits for their
    clocks, and shows a heartbeat while it works.
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
        coordination_of(_concurrency(arguments, config)),
        LazyRunner(lambda: chosen_runner(arguments)),
    )


def _timezone(arguments: argparse.Namespace, config: PipelineConfig | None) -> str | None:
    """The zone of the named table; the dead letters of a pipeline are always in UTC."""
    if arguments.timeline_timezone is not None or config is None:
        named: str | None = arguments.timeline_timezone
        return named
    is_main = place_of(arguments.table) == place_of(config.table.path)
    return config.table.timeline_timezone if is_main else None


def _check_zone(table: OpenTable, arguments: argparse.Namespace) -> None:
    """Pass if the command only plans, or can generate instant times.

    Raises:
        TimelineZoneUnknown: it cannot.
    """
    if getattr(arguments, "step", None) != "plan":
        table.store.clock.check()


def pipeline_of(arguments: argparse.Namespace) -> PipelineConfig | None:
    """The pipeline that ``--config`` names.

    Raises:
        ConfigError: the file is wrong.
        InvalidConfig: it writes another table.
    """
    if arguments.config is None:
        return None
    config = load(arguments.config)
    arguments.redacted = redaction(config)
    written = [path for path in (config.table.path, config.dead_letters.path) if path]
    if place_of(arguments.table) not in map(place_of, written):
        message = (
            f"pipeline {arguments.config} writes {' and '.join(written)}, not {arguments.table}; "
            "name one of its tables, or the pipeline that writes this table"
        )
        raise InvalidConfig(message)
    return config


def _concurrency(arguments: argparse.Namespace, config: PipelineConfig | None) -> ConcurrencyConfig:
    said = ConcurrencyConfig() if config is None else config.concurrency
    lock = {"provider": arguments.lock, "expire_minutes": arguments.lock_expire_minutes}
    given = {name: value for name, value in lock.items() if value is not None}
    changed: dict[str, object] = {"mode": "multiple", "lock": said.lock.model_copy(update=given)}
    if arguments.clock_skew_ms is not None:
        changed["clock_skew_ms"] = _possible_skew_ms(arguments.clock_skew_ms)
    meant = said.model_copy(update=changed)
    if meant.provider() is LockProvider.IN_PROCESS:
        message = (
            f"pipeline {arguments.config} keeps the table's lock in its own memory, where other "
            "processes do not see it; stop the pipeline and repeat the command with --lock storage"
        )
        raise InvalidConfig(message)
    return meant


def _possible_skew_ms(skew_ms: int) -> int:
    if skew_ms > LONGEST_CLOCK_SKEW_MS:
        message = (
            f"--clock-skew-ms {skew_ms}: every commit holds the table's lock for that long, so at "
            f"most {LONGEST_CLOCK_SKEW_MS} ms are accepted; synchronise the clocks (NTP)"
        )
        raise InvalidConfig(message)
    return skew_ms


def chosen_runner(arguments: argparse.Namespace) -> Runner:
    """Where ``--runner`` says that the work is done.

    Raises:
        SessionFailed: Spark did not start.
    """
    if getattr(arguments, "runner", "local") == "local":
        return LocalRunner()
    # Only here: without it, no command but this needs Spark.
    from streamer.cluster_runner import ClusterRunner
    from streamer.session import plain_session

    return ClusterRunner(plain_session("lakemark table service"))


def cleaning_policy(arguments: argparse.Namespace) -> CleaningPolicy:
    """What ``--retain-…`` says; without, what the pipeline does, or else ten commits."""
    if arguments.retain_hours:
        return CleaningPolicy(Retention.HOURS, hours=arguments.retain_hours)
    if arguments.retain_versions:
        return CleaningPolicy(Retention.FILE_VERSIONS, file_versions=arguments.retain_versions)
    config = pipeline_of(arguments)
    if arguments.retain_commits is None and config is not None:
        return config.cleaning.policy_of_table()
    return CleaningPolicy(commits=arguments.retain_commits or _COMMITS_RETAINED)


def show_work(rows: Sequence[Facts], arguments: argparse.Namespace, if_empty: str) -> None:
    """Print what a command would do or has done; the last line, on stderr, says which of the two.

    Args:
        rows: one for each thing that is changed.
        arguments: of the command, with its step: ``plan``, ``schedule`` or ``run``.
        if_empty: what a reader gets if there are no rows.
    """
    show_rows(rows, Console(), arguments.json, if_empty)
    sys.stdout.flush()
    if arguments.step == "plan":
        remedy = "; add --run to execute the plan" if rows else ""
        print(f"nothing was changed{remedy}", file=sys.stderr)
    elif arguments.step == "schedule" and rows:
        print("only the plan was written; --run executes it", file=sys.stderr)


def rows_of_files(instant: str | None, files: Mapping[str, Sequence[str]]) -> list[Facts]:
    """One row for each file that an instant keeps or deletes, by partition."""
    return [
        {"instant": instant, "partition": partition, "file": name}
        for partition, names in files.items()
        for name in names
    ]


def file_rows(undone: RollbackPlan) -> list[Facts]:
    """One row for each file of an instant that is undone; one without a file when it has none."""
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
