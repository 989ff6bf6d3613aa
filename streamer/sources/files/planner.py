"""Reads the files of a folder in batches, in the order of their modification times.

A batch is read when it is planned, because only reading shows how many records it has, and where
the next batch begins. The files are listed again when all files of the last listing are read.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import pyarrow as pa

from checkpoints.files_position import FilePart, FilesPosition, FileVersion, Memory
from lakemark.storage.parallel_requests import request_all
from lakemark.storage.storage import NotFound, ObjectInfo, Storage
from sinks.audit import OffsetGap
from sinks.batch import RecordsBatch
from streamer.sources.batch_records import BatchRecords
from streamer.sources.files.errors import (
    BadFile,
    FileIsChanging,
    FileWasReplaced,
    UnreadableFile,
)
from streamer.sources.files.file_format import FileFormat, Piece, read_pieces
from streamer.sources.files.listing import list_files, version_of
from streamer.sources.source import CheckRead

_LOG = logging.getLogger(__name__)

#: How many names of files a message contains.
_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesSettings:
    """How files are read.

    Attributes:
        file_format: reads the files.
        pattern: the files to read.
        max_bytes: about how many bytes of records a batch has.
        max_files: the largest number of files of a batch.
        memory: how many files a position remembers.
        skips_bad_files: whether a file that cannot be read becomes a dead letter.
        reads_changes: whether a changed file is read again.
    """

    file_format: FileFormat
    pattern: str
    max_bytes: int
    max_files: int
    memory: Memory
    skips_bad_files: bool
    reads_changes: bool


class _OpenFile:
    """A file whose next piece can be read.

    Attributes:
        done: the part of the file that was read.
    """

    def __init__(self, storage: Storage, file_format: FileFormat, begin: FilePart) -> None:
        self.done = begin
        self._pieces = read_pieces(storage, file_format, begin.file.path, begin.at)

    def next_piece(self) -> Piece | None:
        """Return the next piece; None at the end of the file.

        Raises:
            UnreadableFile: the rest of the file is not in the format.
            NotFound: the file was deleted.
            StorageUnavailable: the store does not answer.
        """
        piece = next(self._pieces, None)
        if piece is not None:
            rows = self.done.rows + len(piece.values)
            self.done = FilePart(self.done.file, piece.end, rows)
        return piece

    def close(self) -> None:
        self._pieces.close()


class FilesPlanner:
    """Plans the batches of one stream.

    Args:
        storage: the folder.
        settings: how files are read.
        position: how far the files have been read.
        check_read: see ``Source.open_stream``.
        lists_once: whether only the files are read that exist when the stream starts.
        changing: the paths of files that were changing in earlier attempts. They are read after
            the other files, so that they do not delay them. Further paths are added.
    """

    def __init__(
        self,
        storage: Storage,
        settings: FilesSettings,
        position: FilesPosition,
        check_read: CheckRead,
        *,
        lists_once: bool,
        changing: set[str],
    ) -> None:
        self._storage, self._settings = storage, settings
        self._position, self._check_read = position, check_read
        self._lists_once, self._has_listed = lists_once, False
        self._listed: Mapping[FileVersion, ObjectInfo] = {}
        self._listed_at_us = 0
        self._changing, self._read_last = changing, set(changing)
        self._postponed: Sequence[FileVersion] = ()
        self._has_warned = False
        self._unread: deque[FileVersion] = deque()
        self._open: _OpenFile | None = None

    def next(self) -> RecordsBatch | None:
        """Read the next batch; return None if all files are read.

        Raises:
            BadFile: a file cannot be read, and such files are not skipped.
            FileWasReplaced: a file was changed after it was read, and this is not accepted.
            FileIsChanging: a file was deleted while it was being read.
            StorageUnavailable: the store does not answer.
        """
        start = self._position
        files: dict[FileVersion, ObjectInfo] = {}
        while self._unread or self._list():
            records, read = self._read_batch()
            files |= read  # files without records are checked, too
            if tables := records.tables():
                return RecordsBatch(
                    tables=tables,
                    start=start,
                    end=self._position,
                    check_source=partial(self._check, files, self._position),
                )
        return None

    def close(self) -> None:
        """Close the open file."""
        if self._open is not None:
            self._open.close()

    def _list(self) -> bool:
        """List the files; return whether there are unread ones."""
        if self._has_listed and self._lists_once and not self._postponed:
            return False
        if self._has_listed:
            self._read_last.clear()
        self._has_listed = True
        self._listed_at_us = time.time_ns() // 1_000
        self._listed = list_files(self._storage, self._settings.pattern)
        unread = self._position.find_unread(self._listed)
        self._report_changed(self._position.find_changed(unread))
        self._report_deleted()
        self._postponed = [one for one in unread if self._is_read_last(one)]
        self._unread = deque(one for one in unread if not self._is_read_last(one))
        return bool(self._unread) or (bool(self._postponed) and self._list())

    def _is_read_last(self, file: FileVersion) -> bool:
        """Return whether a file is read after all others; one that was begun is continued first."""
        part = self._position.part
        return file.path in self._read_last and (part is None or part.file != file)

    def _report_changed(self, changed: Sequence[FileVersion]) -> None:
        if not changed:
            return
        paths = [f"{self._position.folder}/{one.path}" for one in changed]
        if not self._settings.reads_changes:
            raise FileWasReplaced(paths[0])
        more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
        named = ", ".join(paths[:_NAMED])
        _LOG.warning("%s%s changed after being read; read again completely", named, more)

    def _report_deleted(self) -> None:
        part = self._position.part
        if part is not None and part.file.path not in {one.path for one in self._listed}:
            text = "%s/%s was deleted after %d of its records were read; the others are lost"
            _LOG.warning(text, self._position.folder, part.file.path, part.rows)

    def _read_batch(self) -> tuple[BatchRecords, Mapping[FileVersion, ObjectInfo]]:
        """Read files until the batch is full; return their records, and the files as listed."""
        records, read = BatchRecords(), list[FileVersion]()
        files = dict[FileVersion, ObjectInfo]()
        limits = self._settings
        while self._unread and records.size_bytes < limits.max_bytes:
            if len(files) == limits.max_files:
                break
            file = self._unread[0]
            files[file] = self._listed[file]
            if self._read_file(file, records):
                read.append(self._unread.popleft())
        part = None if self._open is None else self._open.done
        memory = limits.memory
        # Only the first one, which may be continued, is not in order.
        unread = [*islice(self._unread, 2), *([self._unread[-1]] if self._unread else [])]
        unread += self._postponed
        before = self._position.read_to
        self._position = self._position.after(read, part, unread, memory, self._listed_at_us)
        if self._position.read_to != before:
            self._report_forgotten(memory)
        return records, files

    def _report_forgotten(self, memory: Memory) -> None:
        """Warn once if files are forgotten so soon that late files would count as read."""
        remembered, limit_us = self._position.remembered, self._position.read_to[0]
        if self._has_warned or not remembered:
            return
        newest_us = min(remembered[-1].modified_us, self._listed_at_us)
        if limit_us >= newest_us - memory.late_us:
            self._has_warned = True
            text = "%s: more files arrive in source.late_files_s than source.remembered_files, %d; "
            more = "a file that appears late will not be read if it was modified before %s"
            limit = self._position.read_from
            _LOG.warning(text + more, self._position.folder, memory.files, limit)

    def _read_file(self, file: FileVersion, records: BatchRecords) -> bool:
        """Read a file to its end, or until the batch is full; return whether it has ended."""
        records.begin_part(f"{self._position.folder}/{file.path}", file.modified_us)
        opened = self._open or _OpenFile(
            self._storage, self._settings.file_format, self._position.begin_of(file)
        )
        self._open = opened
        try:
            while records.size_bytes < self._settings.max_bytes:
                rows = opened.done.rows
                piece = opened.next_piece()
                if piece is None:
                    break
                records.add(piece.values, rows)
            else:
                return False
        except NotFound as error:
            self._changing.add(file.path)
            raise FileIsChanging(self._position.folder, file.path) from error
        except UnreadableFile as fault:
            self._add_fault(str(fault), opened.done, records)
        opened.close()
        self._open = None
        return True

    def _add_fault(self, reason: str, done: FilePart, records: BatchRecords) -> None:
        path = f"{self._position.folder}/{done.file.path}"
        if not self._settings.skips_bad_files:
            raise BadFile(path, done.rows, reason)
        records.add_fault(f"the file cannot be read from here on: {reason}", done.rows)

    def _check(
        self,
        files: Mapping[FileVersion, ObjectInfo],
        end: FilesPosition,
        gaps: Sequence[OffsetGap],
    ) -> Sequence[Mapping[str, object]]:
        """Check that no file was changed while the batch was read.

        Raises:
            FileIsChanging: a file was changed or deleted.
        """
        found = request_all(self._storage, lambda one: self._storage.head(one.path), [*files])
        changed = [
            file.path
            for (file, listed), now in zip(files.items(), found, strict=True)
            if now is None or version_of(now) != file or now.etag != listed.etag
        ]
        if changed:
            self._changing.update(changed)
            raise FileIsChanging(end.folder, changed[0])
        return self._check_read(end, gaps)


def sample_values(pieces: Iterator[pa.Array], count: int) -> pa.Array:
    """Return the first values of a file, or of several files whose values are bytes."""
    taken = list[pa.Array]()
    for values in pieces:
        if taken and values.type != taken[0].type:
            break
        taken.append(values.slice(0, count - sum(map(len, taken))))
        if sum(map(len, taken)) >= count:
            break
    return pa.concat_arrays(taken) if taken else pa.array([], pa.binary())
