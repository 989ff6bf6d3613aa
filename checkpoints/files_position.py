"""How far a streamer has read the files of a folder.

Files are read in the order of their modification times, and then of their paths. A file may appear
later than files that were modified after it, for example because its upload took long. So a
position is more than the last file that was read: it consists of a limit and the files after the
limit that were read. All files up to the limit count as read. The remembered files also show that a
file was changed after it was read.

The limit moves up when a remembered file is older than ``Memory.late_us``, or when there are more
than ``Memory.files`` of them. So a position has a limited size. The text is JSON::

    {"source": "files", "folder": url, "read_to": [time, path], "remembered": [[time, path, size]],
     "part": [time, path, size, at, rows]}

Times are microseconds since 1970. An empty value is omitted. Apache Hudi's file sources store the
largest modification time of the files that they have read, in milliseconds, or the smallest
``long`` if they have read none (``DFSPathSelector``). ``parse`` accepts this text, too. Other
sources store other numbers, such as the instant of a table, which has more digits.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from checkpoints.position import Position, parse_json

#: The modification time in microseconds, and the path: the order in which files are read.
FileOrder: TypeAlias = tuple[int, str]

_KIND = "files"
_NUMBER = re.compile(r"-?\d+", re.ASCII)

#: A time in milliseconds since 1970. The times of all files since September 2001 have 13 digits.
_APACHE = re.compile(r"\d{1,13}", re.ASCII)
_APACHE_READ_NONE = str(-(1 << 63))

#: How much the clock of a store may be ahead of ours.
_CLOCK_AHEAD_MS = 86_400_000

_US_IN_MS = 1_000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

#: Before all files.
_BEGINNING: FileOrder = (-1, "")


@dataclass(frozen=True, slots=True, order=True)
class FileVersion:
    """One version of a file. Another version has another modification time or size.

    Attributes:
        modified_us: the modification time, in microseconds since 1970.
        path: the path below the folder of the source.
        size_bytes: the size.
    """

    modified_us: int
    path: str
    size_bytes: int

    @property
    def order(self) -> FileOrder:
        """The place of the file in the order of reading."""
        return self.modified_us, self.path


@dataclass(frozen=True, slots=True)
class FilePart:
    """The part of a file that was read, if the file is larger than a batch.

    Attributes:
        file: the file.
        at: where the next record begins. The meaning depends on the format, such as a number of
            bytes.
        rows: the number of records before it.
    """

    file: FileVersion
    at: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """How many files a position remembers.

    Attributes:
        files: the largest number of files.
        late_us: files are remembered that were modified at most this time before the newest file,
            in microseconds.
    """

    files: int
    late_us: int


@dataclass(frozen=True, kw_only=True)
class FilesPosition(Position):
    """How far the files of a folder have been read.

    Attributes:
        folder: the canonical URL of the folder; "" if it is not known.
        read_to: all files up to this place count as read.
        remembered: the files after ``read_to`` that were read completely, in order.
        part: the file that was read in part; None if there is none.
    """

    folder: str
    read_to: FileOrder = _BEGINNING
    remembered: tuple[FileVersion, ...] = ()
    part: FilePart | None = None

    @classmethod
    def after_time(cls, folder: str, modified_ms: int) -> FilesPosition:
        """Return the position after all files that were modified at a time or before it.

        Args:
            folder: the canonical URL of the folder; "" if it is not known.
            modified_ms: the time in milliseconds since 1970. It contains the whole millisecond,
                because whoever rounds a time to milliseconds rounds it down.
        """
        return cls(folder=folder, read_to=((modified_ms + 1) * _US_IN_MS, ""))

    @classmethod
    def has_form(cls, text: str) -> bool:
        """Return whether a text looks like the text of such a position."""
        return text.startswith("{") or _NUMBER.fullmatch(text) is not None

    @classmethod
    def parse(cls, text: str) -> FilesPosition:
        """Parse the text of a position.

        Raises:
            ValueError: the text is not that of a position.
        """
        if _NUMBER.fullmatch(text) is not None:
            return _from_apache(text)
        return parse_json(text, "a folder of files", _from_json)

    @property
    def origin(self) -> str:
        """The URL of the folder."""
        return self.folder

    @property
    def summary(self) -> str:
        """The last file that was read, or the time before which all files count as read."""
        if self.part is not None:
            return f"in {self.part.file.path}, after {self.part.rows:,} records"
        if self.read_to == _BEGINNING and not self.remembered:
            return "from the first file"
        newest = max([self.read_to, *(one.order for one in self.remembered)])[1]
        if newest:
            return f"after {newest}"
        return f"files modified since {self.read_from:%Y-%m-%dT%H:%M:%SZ}"

    @property
    def read_from(self) -> datetime:
        """All files before this time count as read."""
        return _EPOCH + timedelta(microseconds=max(self.read_to[0], 0))

    def in_folder(self, folder: str) -> FilesPosition:
        """Return the same position with the URL of the folder."""
        return replace(self, folder=folder)

    def find_unread(self, listed: Iterable[FileVersion]) -> list[FileVersion]:
        """Return the files that were not read completely, in the order of reading.

        A file that was read in part is the first one.
        """
        read, known = set(self.remembered), self._known()
        part = None if self.part is None else self.part.file
        # A file that replaces a known one may have an older time, such as that of its original.
        unread = [
            one
            for one in listed
            if one not in read and (one.order > self.read_to or known.get(one.path, one) != one)
        ]
        return sorted(unread, key=lambda one: (one != part, one))

    def find_changed(self, unread: Iterable[FileVersion]) -> list[FileVersion]:
        """Return those of the unread files that are new versions of files that were read, or begun.

        A change of a file that is no longer remembered is not noticed: the file counts as new.
        """
        known = self._known()
        return [one for one in unread if known.get(one.path, one) != one]

    def _known(self) -> Mapping[str, FileVersion]:
        """Return the files that were read, or begun, and not forgotten, by their paths."""
        known = {one.path: one for one in self.remembered}
        if self.part is not None:
            known[self.part.file.path] = self.part.file
        return known

    def begin_of(self, file: FileVersion) -> FilePart:
        """Return where reading of a file begins or continues."""
        if self.part is not None and self.part.file == file:
            return self.part
        return FilePart(file, 0, 0)

    def after(
        self,
        read: Sequence[FileVersion],
        part: FilePart | None,
        unread: Sequence[FileVersion],
        memory: Memory,
        now_us: int,
    ) -> FilesPosition:
        """Return the position after some more files were read.

        Args:
            read: the files that were read completely.
            part: the file that was read in part.
            unread: the files that are still to be read, with that of ``part``; at least the first
                of them in order, and the newest.
            memory: how many files are remembered.
            now_us: when the files were listed, in microseconds since 1970. A file with a later time
                does not make others old.
        """
        replaced = {one.path for one in read}
        kept = sorted([*read, *(one for one in self.remembered if one.path not in replaced)])
        newest_us = min(max((one.modified_us for one in (*kept, *unread)), default=0), now_us)
        first_unread = min((one.order for one in unread), default=None)
        forgotten = 0
        # The limit must not reach an unread file, which would then count as read.
        while forgotten < len(kept) and (
            first_unread is None or kept[forgotten].order < first_unread
        ):
            is_old = kept[forgotten].modified_us < newest_us - memory.late_us
            if not is_old and len(kept) - forgotten <= memory.files:
                break
            forgotten += 1
        limits = [self.read_to, *(one.order for one in kept[:forgotten])]
        return FilesPosition(
            folder=self.folder,
            read_to=max(limits),
            remembered=tuple(kept[forgotten:]),
            part=part,
        )

    def __str__(self) -> str:
        part = self.part
        values = {
            "source": _KIND,
            "folder": self.folder,
            "read_to": self.read_to if self.read_to != _BEGINNING else None,
            "remembered": [_to_list(one) for one in self.remembered],
            "part": None if part is None else [*_to_list(part.file), part.at, part.rows],
        }
        filled = {name: value for name, value in values.items() if value}
        return json.dumps(filled, separators=(",", ":"), ensure_ascii=False)


def _to_list(file: FileVersion) -> list[object]:
    return [file.modified_us, file.path, file.size_bytes]


def _from_apache(text: str) -> FilesPosition:
    if text == _APACHE_READ_NONE:
        return FilesPosition(folder="")
    is_time = _APACHE.fullmatch(text) is not None
    if not is_time or int(text) > time.time() * 1_000 + _CLOCK_AHEAD_MS:
        message = f"expected a modification time in milliseconds, not in the future; found {text}"
        raise ValueError(message)
    return FilesPosition.after_time("", int(text))


def _from_json(given: Mapping[str, Any]) -> FilesPosition:
    if given["source"] != _KIND:
        message = f"source {given['source']!r}"
        raise ValueError(message)
    time, path = given.get("read_to", _BEGINNING)
    part = given.get("part")
    return FilesPosition(
        folder=str(given.get("folder", "")),
        read_to=(int(time), str(path)),
        remembered=tuple(_to_file(*one) for one in given.get("remembered", ())),
        part=None if part is None else FilePart(_to_file(*part[:3]), int(part[3]), int(part[4])),
    )


def _to_file(modified_us: object, path: object, size_bytes: object) -> FileVersion:
    return FileVersion(int(str(modified_us)), str(path), int(str(size_bytes)))
