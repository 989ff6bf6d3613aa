"""Reads all instants of an archive with their metadata, to write them to another archive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lakemark.codec import avro_container
from lakemark.errors import CorruptData
from lakemark.model.action import COMMITS, Action, State
from lakemark.model.format_version import FormatVersion
from lakemark.timeline.archive_log import ArchiveLogs
from lakemark.timeline.content import build_commit, encode_commit
from lakemark.timeline.lsm_history import LsmHistory
from lakemark.timeline.lsm_writer import ArchivedInstant

#: For archive entries of version 6: the name of the Avro schema of each field with metadata.
_METADATA = {
    "hoodieCleanMetadata": "HoodieCleanMetadata",
    "hoodieRollbackMetadata": "HoodieRollbackMetadata",
    "hoodieSavePointMetadata": "HoodieSavepointMetadata",
    "hoodieIndexCommitMetadata": "HoodieIndexCommitMetadata",
}
_COMMITS = ("hoodieCommitMetadata", "hoodieReplaceCommitMetadata")
_PLANS = {
    "hoodieCompactionPlan": "HoodieCompactionPlan",
    "hoodieCleanerPlan": "HoodieCleanerPlan",
    "hoodieRequestedReplaceMetadata": "HoodieRequestedReplaceMetadata",
}


def archived_instants(archive: ArchiveLogs | LsmHistory) -> list[ArchivedInstant]:
    """Return every completed instant of an archive once, oldest first.

    The metadata of each instant is encoded as an Avro container.

    Raises:
        SnapshotChanged: the archive was rewritten meanwhile.
        CorruptData: the archive is damaged.
    """
    rows = _of_history(archive) if isinstance(archive, LsmHistory) else _of_logs(archive)
    each = {(row.requested_at, row.action): row for row in rows}
    return [each[name] for name in sorted(each)]


def _of_history(history: LsmHistory) -> Iterator[ArchivedInstant]:
    version = history.newest_version() or 0
    for file in history.current():
        for batch in history.rows_of(file, version):
            for row in batch.to_pylist():
                yield ArchivedInstant(
                    row["instantTime"],
                    row["completionTime"] or row["instantTime"],
                    row["action"],
                    row["metadata"] or b"",
                    row["plan"],
                )


def _of_logs(logs: ArchiveLogs) -> Iterator[ArchivedInstant]:
    """Yield the completed instants of an archive of version 6.

    Such an archive has an entry for each state of an instant. Any of these entries may contain the
    plan of the instant.
    """
    plans: dict[tuple[str, Action], bytes] = {}
    done: list[tuple[Action, Mapping[str, Any]]] = []
    for entry in logs.entries():
        action = Action(str(entry["actionType"])).completes_as
        plan = _plan_of(entry)
        if plan is not None:
            plans[str(entry["commitTime"]), action] = plan
        if str(entry.get("actionState") or State.COMPLETED).lower() == State.COMPLETED:
            done.append((action, entry))
    for action, entry in done:
        name = str(entry["commitTime"])
        at = max(str(entry.get("stateTransitionTime") or name), name)
        metadata = _metadata_of(action, entry)
        yield ArchivedInstant(name, at, str(action), metadata, plans.get((name, action)))


def _plan_of(entry: Mapping[str, Any]) -> bytes | None:
    found = ((schema, entry.get(field)) for field, schema in _PLANS.items())
    return next((_encoded(schema, record, entry) for schema, record in found if record), None)


def _metadata_of(action: Action, entry: Mapping[str, Any]) -> bytes:
    if action in COMMITS:
        found = (entry[field] for field in _COMMITS if entry.get(field))
        record: Mapping[str, Any] = next(found, {})
        metadata = build_commit(record, f"archived instant {entry['commitTime']}")
        return encode_commit(action, metadata, FormatVersion.V8)
    kept = ((schema, entry.get(field)) for field, schema in _METADATA.items())
    return next((_encoded(schema, one, entry) for schema, one in kept if one), b"")


def _encoded(schema: str, record: dict[str, Any], entry: Mapping[str, Any]) -> bytes:
    try:
        return avro_container.encode(schema, record)
    except (ValueError, TypeError) as error:
        place = f"archived instant {entry['commitTime']}"
        raise CorruptData(place, None, f"a record {schema}", str(error)[:200]) from error
