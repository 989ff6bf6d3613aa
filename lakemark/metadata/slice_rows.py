"""Reads the rows of one file slice of a metadata table, oldest first.

A base file is an HFile; a log contains blocks of HFiles and of deletes. Only blocks that may
contain a requested key are read. A log block is effective if its instant is valid and no rollback
has undone it.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.hfile import Entries, HFileReader
from lakemark.codec.hfile.file_info import SCHEMA
from lakemark.codec.hfile.selection import Everything, Selection
from lakemark.errors import CorruptData, Unsupported
from lakemark.log.delete_block import read_deletes
from lakemark.log.effective_blocks import IsVisible, effective_blocks
from lakemark.log.log_block import BlockType, HeaderKey, LogBlock
from lakemark.log.log_reader import read_blocks
from lakemark.merge.key_codes import key_codes
from lakemark.metadata.payload import PAYLOADS, read_payload
from lakemark.metadata.recent_logs import RecentLogs
from lakemark.metadata.record_changes import RecordChanges, is_stored_schema, stored_schema
from lakemark.model.file_slice import BaseFile, FileSlice
from lakemark.model.format_version import FormatVersion
from lakemark.read.base_file import open_data_file, open_data_files
from lakemark.storage.storage import Storage

KEY, PAYLOAD = "key", "payload"

#: The most rows and bytes that are decoded together. Batches of this size need little memory, and
#: the overhead of a batch does not matter.
_BATCH_ROWS, _BATCH_BYTES = 1 << 15, 64 << 20

_HFILE = "hfile"


@dataclass(frozen=True, slots=True)
class SliceRows:
    """Reads slices of one metadata table.

    Attributes:
        storage: the metadata table's root.
        is_valid: returns whether the log blocks of an instant are valid.
        version: version of the table. In version 6 a log may have torn blocks of failed attempts.
        recent: logs whose content is known.
    """

    storage: Storage
    is_valid: IsVisible
    version: FormatVersion = FormatVersion.V9
    recent: RecentLogs = field(default_factory=RecentLogs, repr=False)
    _opened: Mapping[str, BinaryIO] = field(default_factory=dict, repr=False)

    @contextmanager
    def opened(self, slices: Iterable[FileSlice]) -> Iterator[SliceRows]:
        """Return a reader of these slices, whose files are all opened at once if it is remote.

        Raises:
            SnapshotChanged: a file was deleted.
        """
        if not self.storage.is_remote:
            yield self
            return
        paths = [file.path for one in slices for file in (one.base, *one.logs) if file is not None]
        with open_data_files(self.storage, paths) as files:
            yield replace(self, _opened=files)

    def of_base(
        self, file_slice: FileSlice, payload: str, selection: Selection
    ) -> Iterator[pa.Table]:
        """Yield the rows of the base file.

        The columns are ``key``, a string, and ``payload``, whose type is in ``PAYLOADS``.

        Args:
            file_slice: the slice to read.
            payload: the field of the stored records to read, one of ``PAYLOADS``.
            selection: the keys to read.

        Raises:
            SnapshotChanged: the file was deleted.
            CorruptData: bytes do not match the format.
            Unsupported: the base file has another format.
        """
        with ExitStack() as open_files:
            for piece in self._base_pieces(file_slice, selection, open_files):
                yield _decode([piece], payload)

    def newest_entries(self, file_slice: FileSlice) -> Entries:
        """Return the newest stored record of each key that is not deleted, sorted by key.

        Raises:
            SnapshotChanged, CorruptData, Unsupported: as for ``of_base``; or another release of
                Apache Hudi wrote records with a different schema.
        """
        everything = Everything()
        with ExitStack() as open_files:
            pieces = [*self._base_pieces(file_slice, everything, open_files)]
            pieces += self._log_pieces(file_slice, everything, open_files)
            newest = _newest(pieces)
        return _sorted(newest, newest.values.is_valid())

    def newest_changes(self, file_slice: FileSlice) -> RecordChanges:
        """Return the newest change of each key in the logs.

        Raises:
            SnapshotChanged, CorruptData, Unsupported: as for ``newest_entries``.
        """
        with ExitStack() as open_files:
            newest = _newest(self._log_pieces(file_slice, Everything(), open_files))
        written = _sorted(newest, newest.values.is_valid())
        return RecordChanges(written, _sorted(newest, newest.values.is_null()).keys)

    def base_reader(self, base: BaseFile) -> HFileReader:
        """Open a base file, and read all of its bytes.

        Raises:
            SnapshotChanged, CorruptData, Unsupported: as for ``newest_entries``.
        """
        _check_is_hfile(base)
        with open_data_file(self.storage, base.path) as stream:
            content = stream.read()
        reader = HFileReader(io.BytesIO(content), base.size_bytes, base.path)
        _check_schema(_schema_of(reader, base.path), base.path)
        return reader

    def of_logs(self, file_slice: FileSlice, payload: str, selection: Selection) -> pa.Table:
        """Return the rows of the logs; the payload is null if a row deletes its key.

        Raises:
            SnapshotChanged, CorruptData, Unsupported: as for ``of_base``.
        """
        with ExitStack() as open_files:
            found = self._log_pieces(file_slice, selection, open_files)
        tables = [_decode(run, payload) for run in _runs(found)]
        return pa.concat_tables([schema_of(payload).empty_table(), *tables])

    def _base_pieces(
        self, file_slice: FileSlice, selection: Selection, open_files: ExitStack
    ) -> Iterator[_Piece]:
        base = file_slice.base
        if base is None:
            return
        _check_is_hfile(base)
        stream = self._open(base.path, open_files)
        reader = HFileReader(stream, base.size_bytes, base.path)
        schema = _schema_of(reader, base.path)
        for entries in _in_batches(reader.select(selection)):
            yield _Piece(entries, schema, base.path)

    def _log_pieces(
        self, file_slice: FileSlice, selection: Selection, open_files: ExitStack
    ) -> list[_Piece]:
        known = None if self.version.logs_name_their_slice else self.recent.find(file_slice.logs)
        if known is not None:
            logs = zip(file_slice.logs, known, strict=True)
            visible = ((log, one) for log, one in logs if self.is_valid(log.name.instant))
            pieces = (_known_pieces(one, log.path, selection) for log, one in visible)
            return [*chain.from_iterable(pieces)]
        blocks: list[LogBlock] = []
        for log in file_slice.logs:
            stream = self._open(log.path, open_files)
            blocks += self._check_whole(read_blocks(stream, log.size_bytes, log.path))
        effective = effective_blocks(blocks, self.is_valid)
        return [piece for block in effective for piece in _pieces(block, selection)]

    def _open(self, path: str, open_files: ExitStack) -> BinaryIO:
        if path in self._opened:
            return self._opened[path]
        return open_files.enter_context(open_data_file(self.storage, path))

    def _check_whole(self, blocks: Iterable[LogBlock]) -> Iterator[LogBlock]:
        """Yield the blocks of a log, and raise ``CorruptData`` for a torn one.

        Except in version 6, a torn block is damage, because each log has only blocks of one
        completed commit.
        """
        for block in blocks:
            if block.type is BlockType.CORRUPT and not self.version.logs_name_their_slice:
                raise block.corrupt(expected="a whole log block", actual="a torn one")
            yield block


class _Piece(NamedTuple):
    """Entries of a base file or log block; without a schema, the values of all entries are null."""

    entries: Entries
    avro_schema: str | None
    path: str


_EMPTY = Entries(pa.array([], pa.binary()), pa.array([], pa.binary()))


def schema_of(payload: str) -> pa.Schema:
    """Return the schema of rows whose payload is this field of the stored records."""
    return pa.schema([(KEY, pa.string()), (PAYLOAD, PAYLOADS[payload])])


def _newest(pieces: Sequence[_Piece]) -> Entries:
    """Return the last entry of each key; the value is null if the entry deletes its key."""
    for piece in pieces:
        _check_schema(piece.avro_schema, piece.path)
    whole = _join([_EMPTY, *(piece.entries for piece in pieces)])
    codes = key_codes(pa.table({KEY: whole.keys}), [KEY])
    last = pa.array(codes.last(np.arange(len(whole.keys))))
    return Entries(*(column.take(last) for column in whole))


def _sorted(entries: Entries, are_kept: pa.BooleanArray) -> Entries:
    """Return some of these entries, sorted by key."""
    kept = Entries(entries.keys.filter(are_kept), entries.values.filter(are_kept))
    order = pc.array_sort_indices(kept.keys)
    return Entries(*(column.take(order) for column in kept))


def _check_schema(avro_schema: str | None, path: str) -> None:
    if avro_schema is not None and not is_stored_schema(avro_schema):
        message = (
            f"{path} was written with the schema of another release of Apache Hudi, and such "
            "a metadata table cannot be continued; build it again"
        )
        raise Unsupported(message)


def _pieces(block: LogBlock, selection: Selection) -> Iterator[_Piece]:
    if block.type is BlockType.DELETE:
        keys = read_deletes(block).record_keys.cast(pa.binary()).drop_null()
        yield _deleted_piece(keys, block.path, selection)
    elif block.type is BlockType.HFILE_DATA:
        yield from _hfile_pieces(block, selection)
    else:
        message = f"{block.path} has a {block.type.name} block; metadata tables have HFILE_DATA"
        raise Unsupported(message)


def _deleted_piece(keys: pa.BinaryArray, path: str, selection: Selection) -> _Piece:
    rows = selection.rows(keys)
    deleted = keys if rows is None else keys.filter(pa.array(rows))
    return _Piece(Entries(deleted, pa.nulls(len(deleted), pa.binary())), None, path)


def _known_pieces(changes: RecordChanges, path: str, selection: Selection) -> Iterator[_Piece]:
    """Yield the pieces of a log whose content is known."""
    written, deleted = changes.written, changes.deleted
    if len(written.keys):
        rows = selection.rows(written.keys)
        if rows is not None:
            written = Entries(*(column.filter(pa.array(rows)) for column in written))
        yield _Piece(written, stored_schema(), path)
    if len(deleted):
        yield _deleted_piece(deleted, path, selection)


def _hfile_pieces(block: LogBlock, selection: Selection) -> Iterator[_Piece]:
    try:
        reader = HFileReader(block.content.open(), block.content.size_bytes, block.path)
        batches = list(_in_batches(reader.select(selection)))
    except CorruptData as error:
        raise block.relocated(error) from error
    schema = block.header.get(HeaderKey.SCHEMA) or _schema_of(reader, block.path)
    for entries in batches:
        yield _Piece(entries, schema, block.path)


def _runs(pieces: Iterable[_Piece]) -> Iterator[list[_Piece]]:
    """Group pieces to decode together, because pieces of logs are small and each batch costs time.

    The pieces of a group have the same schema.
    """
    run: list[_Piece] = []
    run_schema: str | None = None
    run_bytes = 0
    for piece in pieces:
        is_other = None not in (run_schema, piece.avro_schema) and run_schema != piece.avro_schema
        if run and (is_other or run_bytes + piece.entries.values.nbytes > _BATCH_BYTES):
            yield run
            run, run_schema, run_bytes = [], None, 0
        run.append(piece)
        run_schema = run_schema or piece.avro_schema
        run_bytes += piece.entries.values.nbytes
    if run:
        yield run


def _decode(run: list[_Piece], payload: str) -> pa.Table:
    """Decode the rows of a run; a key without a value has a null payload.

    Equal records are decoded once: all keys that a commit adds to one file group have the same
    record in a record index.
    """
    entries = _join([piece.entries for piece in run])
    schema = next((piece.avro_schema for piece in run if piece.avro_schema), None)
    if schema is None:
        nulls = pa.nulls(len(entries.keys), PAYLOADS[payload])
        return _table(entries.keys, nulls, payload, run[0].path)
    records = entries.values.dictionary_encode()
    try:
        distinct = read_payload(records.dictionary, schema, payload, run[0].path)
    except CorruptData:
        if len(run) > 1:  # the error must name the block that is damaged
            return pa.concat_tables([_decode([piece], payload) for piece in run])
        raise
    return _table(entries.keys, distinct.take(records.indices), payload, run[0].path)


def _schema_of(reader: HFileReader, path: str) -> str:
    try:
        return reader.file_info[SCHEMA].decode()
    except (KeyError, UnicodeDecodeError) as error:
        expected = "the schema of the values in file info"
        raise CorruptData(path, None, expected, repr(error)) from error


def _in_batches(blocks: Iterator[Entries]) -> Iterator[Entries]:
    waiting: list[Entries] = []
    waiting_rows = waiting_bytes = 0
    for entries in blocks:
        waiting.append(entries)
        waiting_rows += len(entries.keys)
        waiting_bytes += entries.values.nbytes
        if waiting_rows >= _BATCH_ROWS or waiting_bytes >= _BATCH_BYTES:
            yield _join(waiting)
            waiting, waiting_rows, waiting_bytes = [], 0, 0
    if waiting:
        yield _join(waiting)


def _join(blocks: list[Entries]) -> Entries:
    return Entries(
        pa.concat_arrays([block.keys for block in blocks]),
        pa.concat_arrays([block.values for block in blocks]),
    )


def _table(keys: pa.BinaryArray, values: pa.Array, payload: str, path: str) -> pa.Table:
    try:
        return pa.Table.from_arrays([keys.cast(pa.string()), values], schema=schema_of(payload))
    except pa.ArrowInvalid as error:
        raise CorruptData(path, None, "keys in UTF-8", str(error)) from error


def _check_is_hfile(base: BaseFile) -> None:
    if base.name.extension != _HFILE:
        message = f"{base.path} is not an HFile, but base files of metadata tables must be HFiles"
        raise Unsupported(message)
