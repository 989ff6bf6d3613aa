"""The last step of a new file of a commit."""

from __future__ import annotations

from lakemark.errors import WriteConflict
from lakemark.storage.storage import AlreadyExists, StreamingFile


class ContentMismatch(WriteConflict):
    """An attempt before this one wrote other bytes; what was written so far has to go."""


def made_visible(file: StreamingFile) -> int:
    """Close what was written; returns its size in bytes.

    An attempt that finds the bytes of one before it has nothing to do.

    Raises:
        ContentMismatch: the one before wrote other bytes. What both were made from has changed in
            between, as the records of a topic do that is compacted, or what makes them, as another
            release of Arrow does: no attempt so far may count.
    """
    try:
        return file.close()
    except AlreadyExists as error:
        message = f"{error}: of an attempt that read other rows, or ran other software; start anew"
        raise ContentMismatch(message) from error
