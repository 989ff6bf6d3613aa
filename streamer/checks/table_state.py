"""Describes an existing table for a person who sets up a pipeline: its writers and services."""

from __future__ import annotations

from collections.abc import Iterator

from lakemark.model.action import COMMITS, Action
from lakemark.operations.open_table import OpenTable
from lakemark.transaction.heartbeat import HeartbeatPolicy, find_alive
from lakemark.transaction.multi_writer import MultiWriter
from lakemark.transaction.rollback_checks import check_no_restore
from streamer.checks.check import Finding
from streamer.wording import counted

_PLANS = (Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING, Action.CLEAN)


def describe_state(table: OpenTable, multi_writer: MultiWriter | None) -> Finding:
    """Return the version and the newest commit of a table, and warn of what is pending.

    Args:
        table: the table, just opened.
        multi_writer: the multi-writer settings of the pipeline; None if it is the only writer.

    Raises:
        Refused: a restore is pending.
    """
    check_no_restore(table.timeline)
    properties = table.properties
    commits = table.timeline.completed(*COMMITS)
    newest = f"newest commit {commits[-1].requested_at}" if commits else "no commit yet"
    kind = properties.table_type.value.lower().replace("_", "-")
    facts = f"version {properties.version}, {kind}, merge mode {properties.merge_mode}, {newest}"
    return Finding(facts, (*_writer_warnings(table, multi_writer), *_service_warnings(table)))


def _writer_warnings(table: OpenTable, multi_writer: MultiWriter | None) -> Iterator[str]:
    store, policy = table.store, HeartbeatPolicy()
    if multi_writer is not None:
        policy = multi_writer.heartbeats
    alive = find_alive(table.storage, policy)
    for name in sorted(alive):
        remedy = "" if multi_writer else "; stop it, or set concurrency.mode: multi_writer"
        yield f"another writer is active (heartbeat of instant {name}){remedy}"
    pending = [one for one in table.timeline.pending(*COMMITS) if not store.is_clustering(one)]
    silent = [str(one) for one in pending if one.requested_at not in alive]
    if silent:
        yield (
            f"pending without a heartbeat: {', '.join(silent)}; the next run rolls it back, so "
            "first stop its writer if one is running"
        )


def _service_warnings(table: OpenTable) -> Iterator[str]:
    for action in _PLANS:
        count = len(table.timeline.pending(action))
        if count:
            yield f"{counted(count, f'pending {action.value}')}: lakemark table timeline lists them"
