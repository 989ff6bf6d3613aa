"""Divides files of text into their records: lines, or rows of CSV."""

from __future__ import annotations

import csv
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamer.sources.files.errors import UnreadableFile
from streamer.sources.files.file_format import PIECE_BYTES, Piece, read_block

#: A longer record is not read, because it would have to fit in memory. It is probably no text.
MAX_RECORD_BYTES = 64 << 20

#: How many bytes are read to check a file.
_CHECKED_BYTES = 64 << 10

_NEWLINE, _RETURN, _QUOTE = b'\n\r"'
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

Bytes = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LinesFormat:
    """Records that end with a line break. ``at`` is a number of (decompressed) bytes.

    Empty lines are no records.

    Attributes:
        may_quote: whether a line break between quotation marks does not end a record.
        delimiter: the character between the fields of the header.
        header: the names that the first line must have; None if the first line is a record.
        piece_bytes: how many bytes are read at once.
    """

    may_quote: bool = False
    delimiter: str = ","
    header: tuple[str, ...] | None = None
    piece_bytes: int = PIECE_BYTES

    def read(self, file: BinaryIO, at: int) -> Iterator[Piece]:
        """See ``FileFormat``."""
        _skip(file, at)
        rest = b""
        while block := read_block(file, self.piece_bytes):
            data = rest + block
            ends = self._find_ends(data)
            stop = int(ends[-1]) + 1 if len(ends) else 0
            if len(data) - stop > MAX_RECORD_BYTES:
                message = f"a record is longer than {MAX_RECORD_BYTES >> 20} MiB"
                raise UnreadableFile(message)
            if stop:
                yield self._piece(data[:stop], ends, at)
            at, rest = at + stop, data[stop:]
        if rest:
            yield self._piece(rest + b"\n", np.array([len(rest)], np.int64), at)

    def check(self, file: BinaryIO) -> None:
        """See ``FileFormat``. About the first 64 KiB are read, with the header."""
        next(replace(self, piece_bytes=_CHECKED_BYTES).read(file, 0), None)

    def _find_ends(self, data: bytes) -> Positions:
        """Return the positions of the line breaks that end records."""
        characters = np.frombuffer(data, np.uint8)
        ends = np.flatnonzero(characters == _NEWLINE)
        if self.may_quote and _QUOTE in data:
            marks = self._find_quotes(data, characters)
            ends = ends[np.searchsorted(marks, ends) % 2 == 0]
        return ends

    def _find_quotes(self, data: bytes, characters: Bytes) -> Positions:
        """Return the positions of the marks that begin and end quotations, alternately.

        A mark inside of a field without quotation, such as an inch, is a character like others.
        """
        marks = np.flatnonzero(characters == _QUOTE)
        opening = marks[::2]
        separators = [_QUOTE, _NEWLINE, _RETURN, self.delimiter.encode()[-1]]
        is_first = (opening == 0) | np.isin(characters[opening - 1], separators)
        if is_first.all():
            return marks
        begin = len(_BYTE_ORDER_MARK) if data.startswith(_BYTE_ORDER_MARK) else 0
        kept = list[int]()
        for mark in marks.tolist():
            is_closing = len(kept) % 2 == 1
            if is_closing or mark in (0, begin) or data[mark - 1] in separators[1:]:
                kept.append(mark)
            elif kept and kept[-1] == mark - 1:  # two marks in a quotation are one character
                kept.append(mark)
        return np.array(kept, np.int64)

    def _piece(self, data: bytes, ends: Positions, at: int) -> Piece:
        values = split_at(data, ends)
        if at == 0:
            values = self._without_head(values)
        return Piece(values.filter(pc.greater(pc.binary_length(values), 0)), at + len(data))

    def _without_head(self, values: pa.Array) -> pa.Array:
        """Remove the header and a byte order mark from the first records of a file.

        Raises:
            UnreadableFile: the header names other columns.
        """
        first = values[0].as_py().removeprefix(_BYTE_ORDER_MARK)
        if self.header is None:
            return pa.concat_arrays([pa.array([first], pa.binary()), values[1:]])
        text = first.decode(errors="replace")
        names = tuple(next(csv.reader([text], delimiter=self.delimiter), ()))
        if names != self.header:
            message = (
                f"its header names the columns {', '.join(names)}, but decode.schema declares "
                f"{', '.join(self.header)}"
            )
            raise UnreadableFile(message)
        return values[1:]


def split_at(data: bytes, ends: Positions) -> pa.Array:
    """Return the records that end at some line breaks, without their line breaks.

    Args:
        data: the records.
        ends: the position of the line break of each record, ascending; the last is that of
            ``data``.
    """
    characters = np.frombuffer(data, np.uint8)
    begins = np.concatenate([[0], ends[:-1] + 1])
    has_return = (ends > begins) & (characters[ends - 1] == _RETURN)
    kept = np.delete(characters, np.concatenate([ends, ends[has_return] - 1]))
    removed = np.arange(1, len(ends) + 1) + np.cumsum(has_return)
    offsets = np.concatenate([[0], ends + 1 - removed]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(kept)]
    return pa.Array.from_buffers(pa.binary(), len(ends), buffers)


def _skip(file: BinaryIO, count: int) -> None:
    """Skip bytes. A compressed file is decompressed up to there."""
    if count:
        try:
            file.seek(count)
        except (OSError, EOFError, zlib.error) as error:
            message = f"it ends before byte {count}: {error}"
            raise UnreadableFile(message) from error
