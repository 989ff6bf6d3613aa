"""Reads the archive of table version 6: log files with Avro blocks of ``HoodieArchivedMetaEntry``.

The files are named ``.commits_.archive.<n>_<token>``; a file with a larger n is newer. An instant
has one entry for each of its states, and the entry of the completed state contains the metadata.
File names contain no times, so the files are read from the newest to the oldest. The file
``mergeArchivePlan`` exists while small files are being merged. As long as all small files exist,
the merged file may be incomplete. Then the merged file is skipped, because the small files still
contain all of its entries. Source: ``ArchivedTimelineV1``,
``ArchivedTimelineLoaderV1``, ``TimelineArchiverV1`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import cast

import fastavro

from lakemark.codec.avro_bounds import check_bounded
from lakemark.errors import CorruptData, SnapshotChanged
from lakemark.log.log_block import BlockType, LogBlock
from lakemark.log.log_reader import read_blocks
from lakemark.model.action import Action, State
from lakemark.model.instant import Instant
from lakemark.storage.storage import NotFound, ObjectInfo, Storage
from lakemark.timeline.archived_timeline import ArchivedTimeline, Part
from lakemark.timeline.content import Record, decode_record

_LOG = re.compile(r"\.commits_\.archive\.([0-9]+)(?:_.*)?")
_MERGE_PLAN = "mergeArchivePlan"
_ACTIONS = {str(action): action for action in Action}
_PREFIX, _LENGTH = struct.Struct(">ii"), struct.Struct(">i")

#: For each action, the field of an entry that contains the metadata of a completed instant.
METADATA_FIELDS: Mapping[str, str] = {
    Action.COMMIT: "hoodieCommitMetadata",
    Action.DELTA_COMMIT: "hoodieCommitMetadata",
    Action.REPLACE_COMMIT: "hoodieReplaceCommitMetadata",
    Action.CLEAN: "hoodieCleanMetadata",
    Action.ROLLBACK: "hoodieRollbackMetadata",
    Action.SAVEPOINT: "hoodieSavePointMetadata",
    Action.INDEXING: "hoodieIndexCommitMetadata",
}

#: For each completed action, the action of the pending instant, and the entry's plan field.
PLAN_FIELDS: Mapping[str, tuple[Action, str]] = {
    Action.COMMIT: (Action.COMPACTION, "hoodieCompactionPlan"),
    Action.DELTA_COMMIT: (Action.LOG_COMPACTION, "hoodieCompactionPlan"),
    Action.REPLACE_COMMIT: (Action.REPLACE_COMMIT, "hoodieRequestedReplaceMetadata"),
    Action.CLEAN: (Action.CLEAN, "hoodieCleanerPlan"),
}


def is_archive_log(name: str) -> bool:
    """Return whether a file name is that of an archive file. The folder does not matter."""
    return name == _MERGE_PLAN or _LOG.fullmatch(name) is not None


class ArchiveLogs:
    """Reads the archive of one table. A file is read only once, unless the file grows."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage, self.folder = storage, folder
        self._instants: dict[tuple[str, int], tuple[Instant, ...]] = {}

    def load(self) -> ArchivedTimeline:
        """List the archive's log files; there are none if no instant was ever archived.

        Raises:
            CorruptData: the plan of a merge is damaged.
        """
        _, objects = self._storage.list_folder(self.folder)
        by_name = {info.name: info for info in objects}
        skipped = self._unfinished_merge(by_name)
        numbered = [
            (int(match.group(1)), name)
            for name in by_name
            if (match := _LOG.fullmatch(name)) and name != skipped
        ]
        newest_first = sorted(numbered, reverse=True)
        return ArchivedTimeline(
            tuple(ArchiveLogFile(self, by_name[name]) for _, name in newest_first)
        )

    def newest_number(self) -> int:
        """Return the number of the newest log; 0 if there is none."""
        matches = (_LOG.fullmatch(o.name) for o in self._storage.list_folder(self.folder)[1])
        return max((int(match.group(1)) for match in matches if match), default=0)

    def entries(self) -> Iterator[Record]:
        """Yield all entries, one for each state of an instant. Raises what ``load`` raises."""
        for file in reversed(self.load().files):
            assert isinstance(file, ArchiveLogFile), file
            yield from self._entries(file.info)

    def instants_of(self, info: ObjectInfo) -> tuple[Instant, ...]:
        """Return a file's completed instants. Raises what ``ArchiveFile.instants`` raises."""
        key = (info.path, info.size_bytes)
        if key not in self._instants:
            found = (_instant(entry, info.path) for entry in self._entries(info))
            self._instants[key] = tuple(instant for instant in found if instant)
        return self._instants[key]

    def records_of(
        self, info: ObjectInfo, instants: Collection[Instant], part: Part
    ) -> Iterator[tuple[Instant, Record]]:
        """Yield the plans or metadata of instants in a file; see ``ArchiveFile.read``."""
        names = {(i.requested_at, i.action) for i in self.instants_of(info)}
        left: defaultdict[str, list[Instant]] = defaultdict(list)
        for instant in instants:
            if (instant.requested_at, instant.action) in names:
                left[instant.requested_at].append(instant)
        for entry in self._entries(info) if left else ():
            for instant in left.pop(str(entry.get("commitTime")), ()):
                record = _part_of(entry, instant, part, info.path)
                if record is None:
                    left[instant.requested_at].append(instant)
                else:
                    yield instant, record
            if not left:
                return
        yield from ((instant, {}) for some in left.values() for instant in some)

    def _unfinished_merge(self, by_name: Mapping[str, ObjectInfo]) -> str | None:
        """Return the name of a merged file that may be incomplete; None if there is none."""
        if _MERGE_PLAN not in by_name:
            return None
        path = by_name[_MERGE_PLAN].path
        try:
            plan = decode_record(self._storage.read(path), path)
        except NotFound:
            return None  # the merge has completed meanwhile; duplicate instants do no harm
        candidates = [str(name).rpartition("/")[2] for name in plan.get("candidate") or ()]
        merged = plan.get("mergedArchiveFileName")
        is_complete = not all(name in by_name for name in candidates)
        return None if is_complete or merged is None else str(merged)

    def _entries(self, info: ObjectInfo) -> Iterator[Record]:
        try:
            with self._storage.open(info.path) as stream:
                for block in read_blocks(stream, info.size_bytes, info.path):
                    yield from _records(block)
        except NotFound:
            message = f"{info.path} was merged with other files; load the timeline again"
            raise SnapshotChanged(message) from None


@dataclass(frozen=True, slots=True)
class ArchiveLogFile:
    """One log file of an archive.

    Attributes:
        archive: the archive that reads the file.
        info: the file's path and size.
    """

    archive: ArchiveLogs
    info: ObjectInfo

    def may_hold(self, since: str, until: str | None) -> bool:
        """Return true always, because the file's name contains no times."""
        return True

    def instants(self) -> Sequence[Instant]:
        """See ``ArchiveFile.instants``."""
        return self.archive.instants_of(self.info)

    def read(self, instants: Collection[Instant], part: Part) -> Iterator[tuple[Instant, Record]]:
        """See ``ArchiveFile.read``."""
        return self.archive.records_of(self.info, instants, part)


def _part_of(entry: Record, instant: Instant, part: Part, path: str) -> Record | None:
    """Return the plan or metadata in an entry of an instant; None if it is in another entry."""
    if part is Part.METADATA:
        field = METADATA_FIELDS.get(instant.action, "")
    else:
        _, field = PLAN_FIELDS.get(instant.action, (instant.action, ""))
    is_part = part is Part.PLAN or _instant(entry, path) is not None
    return cast(Record, entry[field]) if is_part and isinstance(entry.get(field), Mapping) else None


def _instant(entry: Record, path: str) -> Instant | None:
    """Return the completed instant of an entry; None if the entry is of another state.

    Old entries have no state; these entries are of completed instants.
    """
    if str(entry.get("actionState") or State.COMPLETED).lower() != State.COMPLETED:
        return None
    requested_at, action = entry.get("commitTime"), _ACTIONS.get(str(entry.get("actionType")))
    if not isinstance(requested_at, str) or action is None:
        found = f"{requested_at} {entry.get('actionType')}"
        raise CorruptData(path, None, "a commit time and an action in every entry", found)
    # Some disks round modification times down, so a completion could appear before its request.
    at = max(str(entry.get("stateTransitionTime") or requested_at), requested_at)
    return Instant(requested_at, action.completes_as, State.COMPLETED, at, is_legacy=True)


def _records(block: LogBlock) -> Iterator[Record]:
    """Yield the records of a block, decoded one by one because archives are rarely read."""
    if block.type is not BlockType.AVRO_DATA:
        raise block.corrupt(expected="a complete block of Avro records", actual=block.type.name)
    content = block.content.read()
    try:
        check_bounded(block.avro_schema, block.path)
        schema = fastavro.parse_schema(block.avro_schema)
        _, count = _PREFIX.unpack_from(content)
        position = _PREFIX.size
        for _ in range(count):
            start = position + _LENGTH.size
            position = start + _LENGTH.unpack_from(content, position)[0]
            record = fastavro.schemaless_reader(BytesIO(content[start:position]), schema, None)
            if not isinstance(record, Mapping):
                raise block.corrupt(expected="a record", actual=type(record).__name__)
            yield record
    except CorruptData:
        raise
    except Exception as error:  # damaged bytes can raise any exception in the decoder
        reason = f"{type(error).__name__}: {error}"[:200]
        raise block.corrupt(expected="Avro records of the block's schema", actual=reason) from error
