"""Writes the archive of table version 6 (see ``archive_log``).

Each archival creates one log file with the next number. The file is created atomically. An instant
has two entries: one for the requested state with the plan, and one for the completed state with the
metadata. Source: ``TimelineArchiverV1``, ``MetadataConversionUtils.createMetaWrapper`` of Apache
Hudi 1.2.0.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from io import BytesIO
from typing import Any

import fastavro

from lakemark.codec import avro_container
from lakemark.errors import WriteConflict
from lakemark.log.data_block import AVRO_BLOCK_VERSION
from lakemark.log.log_block import BlockType, HeaderKey, encode
from lakemark.model.action import State
from lakemark.model.instant import Instant
from lakemark.storage.storage import AlreadyExists, Storage
from lakemark.timeline.archive_log import (
    METADATA_FIELDS,
    PLAN_FIELDS,
    ArchiveLogs,
    is_archive_log,
)
from lakemark.timeline.archived_timeline import just_after
from lakemark.timeline.content import decode_any
from lakemark.timeline.lsm_writer import ArchivedInstant

_ENTRY = "HoodieArchivedMetaEntry"
_ENTRY_VERSION = 1
_WRITE_TOKEN = "1-0-1"
_PREFIX, _LENGTH = struct.Struct(">ii"), struct.Struct(">i")


class ArchiveLogWriter:
    """The ``ArchiveWriter`` of one table. The caller holds the table's lock.

    Args:
        storage: the table's storage.
        archive: the reader of the table's archive.
        check: called before a log is created; raises if the lock was lost.
    """

    def __init__(self, storage: Storage, archive: ArchiveLogs, check: Callable[[], None]) -> None:
        self._storage, self._archive, self._check = storage, archive, check

    def find_archived(self, first: str, last: str) -> tuple[Instant, ...]:
        """See ``ArchiveWriter.find_archived``."""
        return self._archive.load().instants(first, just_after(last))

    def add(self, instants: Iterator[ArchivedInstant], first: str, last: str) -> None:
        """Write the instants, oldest first, as the next log; ``first`` and ``last`` are not used.

        Raises:
            WriteConflict: another archiver created the log of this number first.
        """
        self._create_next(archive_log(instants))

    def merge_files(self) -> None:
        """Do nothing, because lakemark does not merge the logs of table version 6."""

    def clear(self) -> None:
        """See ``ArchiveWriter.clear``. An empty log with the next number remains."""
        listed = self._storage.list_folder(self._archive.folder)[1]
        logs = [info for info in listed if is_archive_log(info.name)]
        if any(info.size_bytes for info in logs):
            self._create_next(b"")
            self._check()
            self._storage.delete([info.path for info in logs])

    def _create_next(self, content: bytes) -> None:
        name = f".commits_.archive.{self._archive.newest_number() + 1}_{_WRITE_TOKEN}"
        self._check()
        try:
            self._storage.create(f"{self._archive.folder}/{name}", content)
        except AlreadyExists as error:
            message = f"another archiver wrote {name} at the same time"
            raise WriteConflict(message) from error


def archive_log(instants: Iterable[ArchivedInstant]) -> bytes:
    """Return the bytes of a log file with one block for each instant."""
    schema_text = json.dumps(avro_container.load_schema(_ENTRY))
    schema = fastavro.parse_schema(json.loads(schema_text))
    header = {HeaderKey.SCHEMA: schema_text}
    blocks = []
    for instant in instants:
        bodies = [_encode_entry(schema, entry) for entry in _entries(instant)]
        content = _PREFIX.pack(AVRO_BLOCK_VERSION, len(bodies))
        content += b"".join(_LENGTH.pack(len(body)) + body for body in bodies)
        # Apache Hudi omits the instant time in these blocks; it is added for our block reader.
        named = {**header, HeaderKey.INSTANT_TIME: instant.requested_at}
        blocks.append(encode(BlockType.AVRO_DATA, named, content))
    return b"".join(blocks)


def _encode_entry(schema: Any, entry: Mapping[str, Any]) -> bytes:
    body = BytesIO()
    fastavro.schemaless_writer(body, schema, entry)
    return body.getvalue()


def _entries(instant: ArchivedInstant) -> Iterator[Mapping[str, Any]]:
    path = f"archived instant {instant.requested_at}"
    planned_as, field = PLAN_FIELDS.get(instant.action, (instant.action, ""))
    plan = {field: decode_any(instant.plan, path)} if field and instant.plan else {}
    pending = planned_as if plan else instant.action
    yield _entry(instant, str(pending), State.REQUESTED, instant.requested_at, plan)
    done = METADATA_FIELDS.get(instant.action)
    content = {done: decode_any(instant.metadata, path)} if done and instant.metadata else {}
    yield _entry(instant, instant.action, State.COMPLETED, instant.completed_at, content)


def _entry(
    instant: ArchivedInstant, action: str, state: State, at: str, content: Mapping[Any, Any]
) -> Mapping[str, Any]:
    return {
        **content,
        "commitTime": instant.requested_at,
        "actionType": action,
        "version": _ENTRY_VERSION,
        "actionState": state.name,
        "stateTransitionTime": at,
    }
