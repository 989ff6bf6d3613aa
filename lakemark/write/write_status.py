"""Closes a new file of a commit; the status that its writer returns."""

from __future__ import annotations

from dataclasses import dataclass

from lakemark.errors import WriteConflict
from lakemark.model.column_ranges import ColumnRanges
from lakemark.storage.storage import AlreadyExists, StreamingFile


class ContentMismatch(WriteConflict):
    """An earlier attempt wrote other bytes; the files written so far must be deleted."""


def close_file(file: StreamingFile) -> int:
    """Close a file, which makes it visible; returns its size in bytes.

    If an earlier attempt wrote the same bytes, there is nothing to do.

    Raises:
        ContentMismatch: an earlier attempt wrote other bytes. Its input changed in between, as the
            records of a compacted topic do, or its software, such as the release of Arrow. None of
            the attempts may be committed.
    """
    try:
        return file.close()
    except AlreadyExists as error:
        message = f"{error}: another attempt read other rows or ran other software; write it again"
        raise ContentMismatch(message) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteStatus:
    """A complete, visible file, with the numbers for the commit's ``WriteStat``.

    Attributes:
        size_bytes: size of the file.
        num_writes: rows in it, deletes not counted, as in Apache Hudi.
        num_deletes: records of its delete blocks; 0 for a base file.
        num_data_blocks: data blocks of a log file; 0 for a base file.
        num_delete_blocks: delete blocks of a log file; 0 for a base file.
        column_ranges: ranges of the columns of its rows; None if they were not requested.
    """

    size_bytes: int
    num_writes: int
    num_deletes: int = 0
    num_data_blocks: int = 0
    num_delete_blocks: int = 0
    column_ranges: ColumnRanges | None = None
