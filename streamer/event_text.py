"""Describes events in one line, for people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from streamer.events import (
    ActionRequested,
    Alive,
    BatchEvent,
    BatchPlanned,
    BatchWritten,
    ChecksViolated,
    ClusteringAwaited,
    CompactionCompleted,
    CompactionFailed,
    CompactionResolved,
    CompactionStarted,
    Event,
    GroupCommitFailed,
    HookDropped,
    HookEvent,
    HookFailed,
    HookSent,
    MetricsServed,
    OffsetsLost,
    PartitionsChanged,
    PartitionsExpired,
    PreparationOutdated,
    ProcessEvent,
    RecordsRejected,
    RequestedServiceFailed,
    Retrying,
    RulesViolated,
    RunEvent,
    RunFailed,
    RunPaused,
    RunResumed,
    RunStarted,
    RunStopped,
    RunStopping,
    SchemaEvolved,
    ServiceCompleted,
    ServiceEvent,
    ServiceFailed,
    SnapshotRead,
    SourceEvent,
    TopicsFound,
    UnresolvedLettersExpire,
    WarningLogged,
)
from streamer.wording import counted, size_text
from transforms.batch_checks import CheckViolation
from transforms.violations import RuleViolations

T = TypeVar("T")

#: How many partitions, and how many rules or checks, a line names.
_SHOWN_PARTITIONS: Final = 5
_SHOWN_RULES: Final = 5


def describe(event: Event) -> str:
    """Describe an event in one line."""
    if isinstance(event, RunEvent):
        return _describe_run(event)
    if isinstance(event, SourceEvent):
        return _describe_source(event)
    if isinstance(event, BatchEvent):
        return _describe_batch_event(event)
    if isinstance(event, ServiceEvent):
        return _describe_service(event)
    if isinstance(event, HookEvent):
        return _describe_hook(event)
    return _describe_process(event)


def _describe_run(event: RunEvent) -> str:
    match event:
        case RunStarted():
            how = "resumes" if event.resumed else "starts"
            at = f" [{event.position}]" if event.position else ""
            return f"{event.pipeline} {how}: {event.topic}{at} -> {event.table}"
        case RunStopping():
            return f"stopping after this {event.work}" if event.work else "stopping"
        case RunStopped():
            at = f", next [{event.position}]" if event.position else ""
            return (
                f"stopped ({event.reason}): {counted(event.batches, 'batch')}, "
                f"{counted(event.rows_written, 'row')} in {event.seconds:.1f} s{at}"
            )
        case RunFailed():
            return f"failed: {event.error_type}: {event.error}"
        case RunPaused():
            return "paused"
        case RunResumed():
            return f"resumed after {event.seconds:.0f} s"
        case ActionRequested():
            return f"asked over HTTP to {event.action}"
        case Retrying():
            limit = f" of {event.max_attempts}" if event.max_attempts else ""
            attempts = f"attempt {event.attempt}{limit}"
            return f"failed ({attempts}), retrying in {event.pause_s:g} s: {event.error}"
        case ClusteringAwaited():
            return f"waiting, looking again in {event.pause_s:g} s: {event.reason}"
        case SnapshotRead():
            return (
                f"snapshot {event.snapshot} is read: {counted(event.batches, 'batch')}, "
                f"{counted(event.rows_written, 'row')} in {event.seconds:.1f} s; the topic follows"
            )


def _describe_source(event: SourceEvent) -> str:
    match event:
        case TopicsFound():
            found = ", ".join(event.topics) or "no new topic"
            return f"search for topics {event.pattern}: {found}"
        case OffsetsLost():
            return (
                f"records of topic {event.topic} were lost and are skipped: "
                f"{'; '.join(event.ranges)}"
            )
        case GroupCommitFailed():
            return f"cannot commit offsets to consumer group {event.group}: {event.reason}"
        case Alive():
            lag = f"{sum(event.lag.values()):,} behind" if event.lag else "lag unknown"
            if event.has_committed:
                return f"alive: {lag}, last commit {event.idle_s:.0f} s ago"
            return f"alive: {lag}, no commit since the start {event.idle_s:.0f} s ago"


def _describe_batch_event(event: BatchEvent) -> str:
    match event:
        case BatchPlanned():
            return f"batch {event.batch_id}: {counted(event.records, 'record')} planned"
        case BatchWritten():
            return _describe_written(event)
        case RecordsRejected():
            others = "" if event.count == 1 else ", the first"
            return (
                f"batch {event.batch_id}: {event.count:,} rejected{others}: {event.first} "
                f"-> {event.dead_letters}"
            )
        case RulesViolated():
            shown = _first_of(event.violations, describe_rule, "rule")
            return f"batch {event.batch_id}: rules violated: {shown}"
        case ChecksViolated():
            shown = _first_of(event.violations, _describe_check, "check")
            return f"batch {event.batch_id}: checks violated: {shown}"
        case PartitionsChanged():
            return (
                f"batch {event.batch_id}: {counted(event.count, 'row')} whose key is in another "
                f"partition, such as: {event.first}"
            )
        case SchemaEvolved():
            return f"batch {event.batch_id}: columns changed: {', '.join(event.changes)}"


def _describe_service(event: ServiceEvent) -> str:
    match event:
        case CompactionStarted():
            return (
                f"compaction {event.instant}{_of(event.table)} started: "
                f"{counted(event.file_groups, 'file group')}, "
                f"{size_text(event.log_bytes)} of logs"
            )
        case CompactionFailed():
            return (
                f"compaction {event.instant}{_of(event.table)} failed "
                f"({counted(event.failures, 'failure')}), "
                f"retrying in {event.pause_s:g} s: {event.error_type}: {event.error}"
            )
        case CompactionCompleted():
            return (
                f"compaction {event.instant}{_of(event.table)}: "
                f"{counted(event.file_groups, 'file group')}, "
                f"{counted(event.rows_written, 'row')}, {size_text(event.bytes_written)} "
                f"in {event.seconds:.2f} s"
            )
        case CompactionResolved():
            return (
                f"compaction {event.instant}{_of(event.table)} is no longer pending: another "
                "writer has completed or removed it"
            )
        case ServiceCompleted():
            return f"{event.service}{_of(event.table)}: {event.summary} in {event.seconds:.2f} s"
        case ServiceFailed():
            return (
                f"{event.service}{_of(event.table)} failed "
                f"({counted(event.failures, 'failure')}), "
                f"retrying in {event.pause_s:g} s: {event.error_type}: {event.error}"
            )
        case RequestedServiceFailed():
            return (
                f"requested {event.service}{_of(event.table)} failed: {event.error_type}: "
                f"{event.error}"
            )
        case PreparationOutdated():
            following = "next time without preparation" if event.is_inline_next else "trying again"
            return f"{event.service}{_of(event.table)} is outdated, {following}: {event.reason}"
        case PartitionsExpired():
            return _describe_expired(event)
        case UnresolvedLettersExpire():
            days = ", ".join(event.partitions[:_SHOWN_PARTITIONS])
            more = ", …" if len(event.partitions) > _SHOWN_PARTITIONS else ""
            letters = counted(event.letters, "unresolved dead letter")
            return f"retention: {letters} will be deleted from {event.table}: {days}{more}"


def _describe_hook(event: HookEvent) -> str:
    match event:
        case HookSent():
            about = f" about {event.instant}" if event.instant else ""
            return f"hook {event.hook} sent {event.notice}{about}, {event.pending} wait"
        case HookFailed():
            return (
                f"hook {event.hook} failed ({counted(event.failures, 'failure')}), retrying in "
                f"{event.pause_s:g} s: {event.error}"
            )
        case HookDropped():
            return f"hook {event.hook} dropped {counted(event.count, 'notice')}: {event.reason}"


def _describe_process(event: ProcessEvent) -> str:
    match event:
        case MetricsServed():
            host = f"[{event.host}]" if ":" in event.host else event.host
            url = f"http://{host}:{event.port}"
            page = f"status at {url}/, " if event.has_status_page else ""
            return f"{page}metrics and health at {url}/metrics, /health, /ready"
        case WarningLogged():
            return f"{event.level} ({event.module}): {event.message}"


def _first_of(violations: Sequence[T], describe_one: Callable[[T], str], what: str) -> str:
    """Describe the first violations, and say how many there are of the others."""
    shown = "; ".join(map(describe_one, violations[:_SHOWN_RULES]))
    others = len(violations) - _SHOWN_RULES
    return f"{shown}; and {counted(others, f'further {what}')}" if others > 0 else shown


def _describe_check(violation: CheckViolation) -> str:
    return f"{violation.check} ({violation.outcome}) {violation.result}"


def describe_rule(violations: RuleViolations) -> str:
    """Return a rule, how many rows violate it, and the origin of the first of these rows."""
    rows = f"{violations.rule}: {counted(violations.count, 'row')} ({violations.outcome})"
    return f"{rows}{' of' if violations.count == 1 else ', the first of'} record {violations.first}"


def _of(table_url: str) -> str:
    """Return " of" and the last part of the table's path; "" for an event of several tables."""
    name = table_url.rstrip("/").rpartition("/")[2]
    return f" of {name}" if name else ""


def _describe_expired(event: PartitionsExpired) -> str:
    shown = ", ".join(event.partitions[:_SHOWN_PARTITIONS])
    more = ", …" if len(event.partitions) > _SHOWN_PARTITIONS else ""
    rows = "" if event.rows is None else f"{counted(event.rows, 'row')}, "
    return (
        f"commit {event.instant}{_of(event.table)}: "
        f"{counted(len(event.partitions), 'partition')} expired ({shown}{more}): {rows}"
        f"{counted(event.files, 'file')}, {size_text(event.bytes_expired)} "
        f"in {event.seconds:.2f} s"
    )


def _describe_written(batch: BatchWritten) -> str:
    stages = ", ".join(f"{name} {seconds:.2f}" for name, seconds in batch.stage_s.items())
    divided = f" ({stages})" if stages else ""
    lag = f", {sum(batch.lag.values()):,} behind" if batch.lag else ""
    ignored = f"{batch.ignored:,} ignored, " if batch.ignored else ""
    filtered = f"{batch.filtered:,} filtered, " if batch.filtered else ""
    commit = f"commit {batch.instant}" if batch.instant else "nothing to commit"
    skipped = f"{batch.offsets_skipped:,} skipped, " if batch.offsets_skipped else ""
    moved = f"{batch.rows_moved:,} moved, " if batch.rows_moved else ""
    dropped = f"{counted(batch.duplicates, 'duplicate')}, " if batch.duplicates else ""
    if batch.tables_written:
        return (
            f"batch {batch.batch_id}: {counted(batch.records_read, 'record')}, {skipped}"
            f"{counted(batch.rejects, 'reject')}, {ignored}{counted(batch.rows_of_tables, 'row')} "
            f"written to {counted(batch.tables_written, 'table')} in {batch.seconds:.2f} s"
            f"{divided}{lag}"
        )
    return (
        f"batch {batch.batch_id}: {counted(batch.records_read, 'record')}, {skipped}"
        f"{counted(batch.rows_written, 'row')} ({counted(batch.rows_deleted, 'delete')}), "
        f"{moved}{dropped}{counted(batch.rejects, 'reject')}, {ignored}{filtered}"
        f"{size_text(batch.bytes_written)} in {batch.seconds:.2f} s{divided}{lag}, {commit}"
    )
