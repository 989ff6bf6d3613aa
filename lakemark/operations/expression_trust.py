"""Decides whether all rows of a table have the values of its partition expressions.

Queries skip folders by these expressions, so a row with another value would be missed. Other
writers may store such rows, because only lakemark knows the expressions. So each commit of lakemark
states that all rows have the right values. It does so only if no other writer committed rows
before. If the newest commit that added rows has no such statement, another writer made that commit
or an earlier one. Then queries do not use the expressions. They still use the partition columns
themselves, and the statistics of the other columns.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakemark.config import keys
from lakemark.config.partition_field import PartitionField
from lakemark.config.table_properties import TableProperties
from lakemark.model.action import COMMITS
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore

#: Operations that add no rows (``WriteOperationType`` of Apache Hudi 1.2.0).
_DELETES = frozenset({"DELETE", "DELETE_PREPPED", "DELETE_PARTITION"})


def trusted_expressions(
    store: TimelineStore, timeline: Timeline, properties: TableProperties
) -> tuple[PartitionField, ...]:
    """Return the partition expressions whose values all rows have.

    Args:
        store: reads the commits.
        timeline: the state of the table that is queried.
        properties: properties of the table.

    Raises:
        SnapshotChanged: a commit was rolled back in the meantime.
        CorruptData: a commit is damaged.
    """
    fields = properties.partition_expressions
    if not fields:
        return ()
    return fields if _all_rows_have(store, timeline, _stored_text(properties)) else ()


def expression_statement(
    store: TimelineStore, timeline: Timeline, properties: TableProperties
) -> Mapping[str, str]:
    """Return the extra metadata by which a commit of lakemark states that all rows are right.

    Empty if the table has no expressions, or if earlier rows are not certain.

    Args:
        store: reads the commits.
        timeline: the newest timeline, loaded under the lock.
        properties: properties of the table.
    """
    if not trusted_expressions(store, timeline, properties):
        return {}
    return {keys.PARTITION_EXPRESSIONS: _stored_text(properties)}


def _stored_text(properties: TableProperties) -> str:
    return properties.values[keys.PARTITION_EXPRESSIONS]


def _all_rows_have(store: TimelineStore, timeline: Timeline, text: str) -> bool:
    commits = timeline.completed(*COMMITS)
    if any(commit.is_legacy for commit in commits):
        # In version 6, their order is that of the files' times, which a copy of the table changes.
        found = [_statement(one, text) for one in store.read_commits(commits)]
        known = [each for each in found if each is not None]
        return all(known) if known else not timeline.has_history
    for commit in reversed(commits):
        stated = _statement(store.read_commit(commit), text)
        if stated is not None:
            return stated
    return not timeline.has_history


def _statement(metadata: CommitMetadata, text: str) -> bool | None:
    """Return what a commit says about all rows until then; None if it added no rows."""
    if metadata.extra_metadata.get(keys.PARTITION_EXPRESSIONS) == text:
        return True
    adds_rows = metadata.may_change_schema and metadata.operation not in _DELETES
    return False if adds_rows and metadata.write_stats else None
