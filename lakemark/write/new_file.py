"""Closing of a new file of a commit."""

from __future__ import annotations

from lakemark.errors import WriteConflict
from lakemark.storage.storage import AlreadyExists, StreamingFile


class ContentMismatch(WriteConflict):
    """An earlier attempt wrote other bytes; the files written so far must be deleted."""


def made_visible(file: StreamingFile) -> int:
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
