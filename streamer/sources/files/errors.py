"""The errors of the source of files. All of them are raised before a batch is published.

SourceError
├─ ForeignFolder       (Permanent) the table's position belongs to another folder or source
├─ BadFile             (Permanent) a file cannot be read, and ``source.on_bad_file`` is ``fail``
├─ FileWasReplaced     (Permanent) a file was changed after it was read, and this is not accepted
└─ FileIsChanging      (Retriable) a file was changed or deleted while it was being read
"""

from __future__ import annotations

from lakemark.errors import Permanent
from streamer.sources.errors import SourceBeingWritten, SourceError

#: How many characters of a position a message shows, which may contain many paths.
_SHOWN = 200


class UnreadableFile(Exception):
    """The rest of a file is not in its format. The message is the reason."""


class ForeignFolder(SourceError, Permanent):
    """The table's position belongs to another folder, or to another kind of source."""

    def __init__(self, folder: str, position: str) -> None:
        super().__init__(
            f"the table's position {position[:_SHOWN]} does not belong to the files of "
            f"source.path, {folder}; set a different source.checkpoint_id in each pipeline of "
            "the table"
        )
        self.folder, self.position = folder, position


class BadFile(SourceError, Permanent):
    """A file is not in its format."""

    def __init__(self, path: str, rows: int, reason: str) -> None:
        super().__init__(
            f"{path} cannot be read after {rows} records: {reason}; correct the file, or set "
            "source.on_bad_file: dead_letter"
        )
        self.path, self.rows, self.reason = path, rows, reason


class FileWasReplaced(SourceError, Permanent):
    """A file was changed after it was read."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} was changed after it was read, and source.on_changed_file is fail; write "
            "changes to new files, or set source.on_changed_file: read_again"
        )
        self.path = path


class FileIsChanging(SourceBeingWritten):
    """A file was changed or deleted while it was being read."""

    def __init__(self, folder: str, path: str) -> None:
        super().__init__(
            f"{folder}/{path} was changed or deleted while it was being read; nothing of the batch "
            "was published, and the files are listed again"
        )
        self.folder, self.path = folder, path
