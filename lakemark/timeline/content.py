"""Encodes and decodes the content of the timeline's files.

Commits, delta commits and replace commits are JSON text in layout 1, and Avro containers of one
record with the same field names in layout 2. Plans and all other instants are Avro containers of
one record in both layouts. Source: ``CommitMetadataSerDeV1``, ``…V2`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from lakemark.codec import avro_container
from lakemark.errors import CorruptData
from lakemark.model.action import Action
from lakemark.model.clean_plan import CleanPlan, clean_metadata_record
from lakemark.model.clustering_plan import ClusteringPlan
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.compaction_plan import CompactionPlan
from lakemark.model.format_version import FormatVersion
from lakemark.model.index_plan import IndexPlan
from lakemark.model.restore_plan import RestorePlan, restore_metadata_record
from lakemark.model.rollback_plan import RollbackPlan
from lakemark.model.savepoint_metadata import SavepointMetadata

T = TypeVar("T")

#: A stored record, with Apache Hudi's field names.
Record = Mapping[str, Any]

_SCHEMAS = {
    Action.COMMIT: "HoodieCommitMetadata",
    Action.DELTA_COMMIT: "HoodieCommitMetadata",
    Action.REPLACE_COMMIT: "HoodieReplaceCommitMetadata",
}

#: In JSON, only write stats of logs have the fields ``_ONLY_LOGS``; none has ``_ONLY_AVRO``.
_ONLY_LOGS = frozenset({"logVersion", "logOffset", "baseFile", "logFiles"})
_ONLY_AVRO = frozenset({"totalLogFiles"})


def decode_record(data: bytes, path: str) -> Record:
    """Decode the record of a plan, a clean, a rollback, a restore or a savepoint.

    Raises:
        CorruptData: the data is not an Avro container of one record.
    """
    if not data:
        raise CorruptData(path, 0, "an Avro container of one record", "an empty file")
    return avro_container.decode(data, path)


def decode_as(build: Callable[[Record], T], data: bytes, path: str) -> T:
    """Decode content that ``decode_record`` reads, and build a value from it.

    Args:
        build: builds the value from the record.
        data: the file's content.
        path: the file's path, for errors.

    Raises:
        CorruptData: the data is not an Avro container of one record, or a field is wrong.
    """
    return build_value(build, decode_record(data, path), path)


def build_value(build: Callable[[Record], T], record: Record, path: str) -> T:
    """Build a value from a stored record; see ``decode_as``.

    Raises:
        CorruptData: a field is missing or wrong.
    """
    try:
        return build(record)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"[:200]
        raise CorruptData(path, None, "a record with Apache Hudi's fields", reason) from error


def decode_any(data: bytes, path: str) -> Record:
    """Decode the content of an instant, which is an Avro container or JSON.

    Raises:
        CorruptData: the content is neither an Avro container nor JSON.
    """
    is_avro = data.startswith(avro_container.MAGIC) or not data
    return decode_record(data, path) if is_avro else _decode_json(data, path)


def decode_commit(data: bytes, path: str) -> CommitMetadata:
    """Decode a completed commit, delta commit or replace commit, of either layout.

    Raises:
        CorruptData: the data is neither an Avro container nor a JSON object, or a field is wrong.
    """
    return build_commit(decode_any(data, path), path)


def build_commit(record: Record, path: str) -> CommitMetadata:
    """Build the metadata of a commit from its stored record.

    Raises:
        CorruptData: a field has the wrong type.
    """
    _check_commit(record, path)
    return CommitMetadata.from_record(record)


def encode_commit(
    action: Action, metadata: CommitMetadata, version: FormatVersion = FormatVersion.V9
) -> bytes:
    """Encode a completed or inflight commit for a table of a format version."""
    record = metadata.to_record()
    if action.completes_as is Action.REPLACE_COMMIT:
        replaced = {partition: list(ids) for partition, ids in metadata.replaced_file_ids.items()}
        record["partitionToReplaceFileIds"] = replaced
    if version.timeline_layout == 1:
        return _encode_commit_json(record)
    return avro_container.encode(_SCHEMAS[action.completes_as], record)


def encode_compaction_plan(plan: CompactionPlan) -> bytes:
    """Encode a requested compaction."""
    return avro_container.encode("HoodieCompactionPlan", plan.to_record())


def encode_clustering_plan(plan: ClusteringPlan, root: str) -> bytes:
    """Encode a requested clustering; see ``ClusteringPlan.to_record``."""
    return avro_container.encode("HoodieRequestedReplaceMetadata", plan.to_record(root))


def encode_replace_request(operation: str) -> bytes:
    """Encode a requested commit that replaces rows, which has no plan.

    The file groups to replace are known only when the commit completes.
    """
    record: dict[str, Any] = {
        "operationType": str(operation),
        "clusteringPlan": None,
        "extraMetadata": {},
        "version": 1,
    }
    return avro_container.encode("HoodieRequestedReplaceMetadata", record)


def encode_clean_plan(plan: CleanPlan, root: str) -> bytes:
    """Encode a requested clean; see ``CleanPlan.to_record``."""
    return avro_container.encode("HoodieCleanerPlan", plan.to_record(root))


def encode_clean_metadata(plan: CleanPlan, started_at: str, took_ms: int) -> bytes:
    """Encode a completed clean; see ``clean_metadata_record``."""
    return avro_container.encode(
        "HoodieCleanMetadata", clean_metadata_record(plan, started_at, took_ms)
    )


def encode_index_plan(plan: IndexPlan) -> bytes:
    """Encode a requested indexing action."""
    return avro_container.encode("HoodieIndexPlan", plan.to_record())


def encode_index_metadata(plan: IndexPlan) -> bytes:
    """Encode a completed indexing action; see ``IndexPlan.caught_up``."""
    return avro_container.encode("HoodieIndexCommitMetadata", plan.to_commit_record())


def encode_rollback_plan(plan: RollbackPlan) -> bytes:
    """Encode a requested rollback."""
    return avro_container.encode("HoodieRollbackPlan", plan.to_record())


def encode_rollback_metadata(plan: RollbackPlan, started_at: str, took_ms: int) -> bytes:
    """Encode a completed rollback."""
    return avro_container.encode(
        "HoodieRollbackMetadata", plan.metadata_record(started_at, took_ms)
    )


def encode_savepoint(metadata: SavepointMetadata) -> bytes:
    """Encode a completed savepoint."""
    return avro_container.encode("HoodieSavepointMetadata", metadata.to_record())


def encode_restore_plan(plan: RestorePlan) -> bytes:
    """Encode a requested restore."""
    return avro_container.encode("HoodieRestorePlan", plan.to_record())


def encode_restore_metadata(
    started_at: str, took_ms: int, undone: Sequence[RollbackPlan], deletes_archived: bool
) -> bytes:
    """Encode a completed restore; see ``restore_metadata_record``."""
    record = restore_metadata_record(started_at, took_ms, undone, deletes_archived)
    return avro_container.encode("HoodieRestoreMetadata", record)


def _encode_commit_json(record: Record) -> bytes:
    """Encode a commit as JSON, for layout 1.

    The write stat of a base file must lack the fields ``_ONLY_LOGS``. Readers recognise the write
    stat of a log by these fields.
    """
    grouped = record["partitionToWriteStats"]
    stats = {path: [_json_stat(stat) for stat in stats] for path, stats in grouped.items()}
    kept = {name: value for name, value in record.items() if name != "version"}
    return json.dumps({**kept, "partitionToWriteStats": stats}, indent=2).encode()


def _json_stat(stat: Record) -> Record:
    is_log = stat["logVersion"] is not None
    left_out = _ONLY_AVRO if is_log else _ONLY_AVRO | _ONLY_LOGS
    return {name: value for name, value in stat.items() if name not in left_out}


def _decode_json(data: bytes, path: str) -> Record:
    try:
        record = json.loads(data)
    except (ValueError, RecursionError) as error:
        expected = "commit metadata, as an Avro container or as JSON"
        raise CorruptData(path, None, expected, str(error)[:200]) from error
    if not isinstance(record, dict):
        raise CorruptData(path, None, "a JSON object", type(record).__name__)
    return record


def _check_commit(record: Record, path: str) -> None:
    """Check the types of the fields, because JSON has no schema."""
    for stats in _values(record.get("partitionToWriteStats"), path):
        for stat in _list(stats, path):
            _check_stat(stat, path)
    for file_ids in _values(record.get("partitionToReplaceFileIds"), path):
        for file_id in _list(file_ids, path):
            _check_kind(file_id, str, path)
    for text in _values(record.get("extraMetadata"), path):
        _check_kind(text, str, path)


def _check_stat(stat: object, path: str) -> None:
    if not isinstance(stat, Mapping):
        raise _unlike(Mapping, stat, path)
    for name in ("path", "fileId", "partitionPath", "prevCommit", "baseFile"):
        _check_kind(stat.get(name), str, path)
    _check_kind(stat.get("fileSizeInBytes"), int, path)


def _values(value: object, path: str) -> Iterable[object]:
    """Return the values of a map that may be null."""
    _check_kind(value, Mapping, path)
    return value.values() if isinstance(value, Mapping) else ()


def _list(value: object, path: str) -> Iterable[object]:
    if not isinstance(value, list):
        raise _unlike(list, value, path)
    return value


def _check_kind(value: object, kind: type, path: str) -> None:
    if value is not None and not isinstance(value, kind):
        raise _unlike(kind, value, path)


def _unlike(kind: type, actual: object, path: str) -> CorruptData:
    expected = f"commit metadata with a {kind.__name__} in this field"
    return CorruptData(path, None, expected, repr(actual)[:80])
