"""The protocol of the formats of files, and the opening of files."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO, Protocol, cast

import pyarrow as pa

from lakemark.storage.storage import Storage
from streamer.sources.files.errors import UnreadableFile
from streamer.sources.files.stored_file import StoredFile

#: How many bytes of text a piece has at most, or one larger record.
PIECE_BYTES = 8 << 20

_GZIP = ".gz"


@dataclass(frozen=True, slots=True)
class Piece:
    """Some consecutive records of a file.

    Attributes:
        values: the values of the records, bytes or structs; maybe none.
        end: where the next record begins, for ``FileFormat.read``.
    """

    values: pa.Array
    end: int


class FileFormat(Protocol):
    """Reads the records of a file, piece by piece, with limited memory."""

    def read(self, file: BinaryIO, at: int) -> Iterator[Piece]:
        """Yield the records of a file.

        Args:
            file: the file, at its beginning.
            at: where the first record begins: 0, or ``end`` of an earlier piece of this file.

        Raises:
            UnreadableFile: the file is not in the format. Earlier pieces are valid.
        """
        ...

    def check(self, file: BinaryIO) -> None:
        """Check a file by a small part of it, such as its footer.

        Args:
            file: the file, at its beginning.

        Raises:
            UnreadableFile: the file is not in the format.
        """
        ...


def read_pieces(
    storage: Storage, file_format: FileFormat, path: str, at: int
) -> Generator[Piece, None, None]:
    """Yield the records of a file, which is decompressed if its name ends in ``.gz``.

    Args:
        storage: the folder.
        file_format: reads the file.
        path: the path of the file.
        at: see ``FileFormat.read``.

    Raises:
        UnreadableFile: the file is not in the format. Earlier pieces are valid.
        NotFound: the file was deleted.
        StorageUnavailable: the store does not answer.
    """
    with _open_stored(storage, path) as file:
        yield from file_format.read(file, at)


def check_file(storage: Storage, file_format: FileFormat, path: str) -> None:
    """Check a file by a small part of it; see ``FileFormat.check``.

    Raises:
        UnreadableFile: the file is not in the format.
        NotFound: the file was deleted.
        StorageUnavailable: the store does not answer.
    """
    with _open_stored(storage, path) as file:
        file_format.check(file)


@contextmanager
def _open_stored(storage: Storage, path: str) -> Iterator[BinaryIO]:
    """Open a file, which is decompressed if its name ends in ``.gz``."""
    with storage.open(path) as opened:
        stored = StoredFile(opened)
        file = gzip.GzipFile(fileobj=stored) if path.endswith(_GZIP) else stored
        try:
            yield cast(BinaryIO, file)
        except Exception:
            # A decoder may report a failure of the store as if the bytes were damaged.
            if stored.failure is not None:
                raise stored.failure from None
            raise


def read_block(file: BinaryIO, size: int) -> bytes:
    """Read up to ``size`` bytes; fewer only at the end.

    Raises:
        UnreadableFile: compressed data is damaged or ends early.
    """
    try:
        return file.read(size)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        message = f"it is not a complete gzip file: {error}"
        raise UnreadableFile(message) from error
