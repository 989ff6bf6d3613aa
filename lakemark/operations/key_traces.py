"""Searches every file of a table for record keys, to prove that records were erased.

The search lists the storage, and not the timeline. So it also finds files that no query reads:
older file slices, replaced file groups, files of failed writes, and the metadata table.

============================ =====================================================================
file                         what is compared with the keys
============================ =====================================================================
base file                    the record key of each row; in a file without record keys, texts
log file                     the record keys of rows and deletes; in a log of changes (CDC), which
                             may lack record keys, those of the rows before and after each change,
                             and texts
metadata table               the record keys of the record index and secondary indexes, and texts
timeline, archive, others    texts; compressed files of unknown formats cannot be read
============================ =====================================================================

If the record key has two possible encodings (``lakemark.keygen.key_generator``), record keys are
compared in both of them. Older files may have the other encoding than the rows, and without rows
the encoding is unknown. Texts are compared only as given, because the value alone may be an
ordinary text, such as a date.

A text is a value of a column, or a string in JSON or binary Avro. In JSON and Avro, keys of fewer
than 7 bytes are not searched, because their bytes occur by chance.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.byte_strings import byte_strings
from lakemark.codec.hfile.reader import HFileReader
from lakemark.codec.varint import zigzag
from lakemark.config.table_properties import SECONDARY_INDEX_PREFIX
from lakemark.errors import CorruptData, Unsupported
from lakemark.execution.runner import Runner
from lakemark.keygen.key_generator import KeyGenerator
from lakemark.log.data_block import read_rows
from lakemark.log.delete_block import read_deletes
from lakemark.log.log_block import BlockType, LogBlock
from lakemark.log.log_reader import read_blocks
from lakemark.log.parquet_format import open_parquet
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.metadata.secondary_index import record_keys_in
from lakemark.model.file_names import LogFileName
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.storage.storage import NotFound, ObjectInfo, Storage

_HOODIE = ".hoodie/"
_INDEX_RECORDS = f"{METADATA_FOLDER}/"
_INDEX_TIMELINE = f"{METADATA_FOLDER}/.hoodie/"
_RECORD_INDEX = f"{_INDEX_RECORDS}{PartitionKind.RECORD_INDEX.stored_name}/"

#: The rows before and after a change in a log of changes (CDC).
_IMAGES = ("before", "after")

#: Files of one task. A Spark task costs about as much as reading some small files.
_FILES_A_TASK = 16

#: The shortest encoded text that is searched, in bytes: one unsigned integer of numpy.
_LITERAL_BYTES = 8

#: The first bytes of files whose texts are compressed: gzip, zip, Zstandard, bzip2, xz, ORC, HFile.
_COMPRESSED = (b"\x1f\x8b", b"PK", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ", b"ORC", b"DATABLK")


class Place(StrEnum):
    """The kind of a file in which keys are searched; the values are shown to users."""

    BASE_FILE = "base file"
    LOG_FILE = "log file"
    METADATA_TABLE = "metadata table"
    OTHER = "timeline or other file"

    @classmethod
    def of(cls, path: str) -> Place:
        """Return the kind of a file by its path below the table's root."""
        if path.startswith(_INDEX_RECORDS) and not path.startswith(_INDEX_TIMELINE):
            return cls.METADATA_TABLE
        name = path.rpartition("/")[2]
        if not path.startswith(_HOODIE) and LogFileName.parse(name) is not None:
            return cls.LOG_FILE
        is_base = not path.startswith(_HOODIE) and name.endswith(".parquet")
        return cls.BASE_FILE if is_base else cls.OTHER


@dataclass(frozen=True, slots=True)
class Trace:
    """A file that contains at least one of the keys, or that cannot be read.

    Attributes:
        path: path of the file below the table's root.
        place: what kind of file it is.
        keys: the number of different keys that were found; 0 if the file is damaged or of an
            unknown format, so that it may contain keys.
    """

    path: str
    place: Place
    keys: int


@dataclass(frozen=True, slots=True)
class TraceSearch:
    """The result of a search for record keys.

    Attributes:
        traces: the files that contain keys, or that cannot be read.
        searched: the number of files that were searched, by kind.
    """

    traces: tuple[Trace, ...] = ()
    searched: Mapping[Place, int] = field(default_factory=dict)


def find_traces(
    storage: Storage,
    record_keys: Sequence[str],
    runner: Runner,
    generator: KeyGenerator | None = None,
) -> TraceSearch:
    """Search every file of a table for record keys.

    Args:
        storage: the storage of the table, whose rows contain their record keys.
        record_keys: the keys, as the table stores them.
        runner: searches the files; each task gets the storage, the keys and some paths.
        generator: computes the record keys of rows that are stored without them, and knows the
            encodings of keys; if it is None, or keys are automatic, a log of changes with such
            rows counts as unreadable.

    Raises:
        StorageUnavailable: the store does not answer.
    """
    files = sorted(storage.list_tree(""), key=lambda info: info.path)
    tasks = [files[at : at + _FILES_A_TASK] for at in range(0, len(files), _FILES_A_TASK)]
    found = runner.map(_FileSearch(storage, tuple(record_keys), generator), tasks)
    searched = Counter(Place.of(info.path) for info in files)
    return TraceSearch(tuple(one for traces in found for one in traces), searched)


@dataclass(frozen=True)
class _FileSearch:
    """Searches files in a worker; can be pickled."""

    storage: Storage
    record_keys: tuple[str, ...]
    generator: KeyGenerator | None

    def __call__(self, files: Sequence[ObjectInfo]) -> list[Trace]:
        traces = (self._search(info, Place.of(info.path)) for info in files)
        return [trace for trace in traces if trace is not None]

    def _search(self, info: ObjectInfo, place: Place) -> Trace | None:
        found: set[str] = set()
        try:
            for keys in self._keys_in(info, place):
                found.update(keys)
        except NotFound:
            return None  # a writer has deleted the file
        except (CorruptData, Unsupported, pa.ArrowException, ValueError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # reading from storage failed; the bytes may be valid
            return Trace(info.path, place, len(found))
        return Trace(info.path, place, len(found)) if found else None

    def _keys_in(self, info: ObjectInfo, place: Place) -> Iterator[Iterable[str]]:
        is_parquet = info.name.endswith(".parquet")
        if LogFileName.parse(info.name) is not None:
            yield from self._in_log(info, place)
        elif place is Place.METADATA_TABLE and info.name.endswith(".hfile"):
            with self.storage.open(info.path) as file:
                yield from self._in_hfile(HFileReader(file, info.size_bytes, info.path), info.path)
        elif is_parquet:
            yield from self._in_parquet(info)
        else:
            content = self.storage.read(info.path)
            if content.startswith(_COMPRESSED):
                message = f"{info.path} is compressed, so that its texts cannot be searched"
                raise Unsupported(message)
            yield self._literals.found_in(np.frombuffer(content, np.uint8))

    def _in_parquet(self, info: ObjectInfo) -> Iterator[Iterable[str]]:
        with self.storage.open(info.path) as file, closing(open_parquet(file)) as parquet:
            has_keys = RECORD_KEY in parquet.schema_arrow.names
            for batch in parquet.iter_batches(columns=[RECORD_KEY] if has_keys else None):
                yield from self._in_rows(pa.Table.from_batches([batch]))

    def _in_log(self, info: ObjectInfo, place: Place) -> Iterator[Iterable[str]]:
        with self.storage.open(info.path) as file:
            for block in read_blocks(file, info.size_bytes, info.path):
                yield from self._in_block(block, place)

    def _in_block(self, block: LogBlock, place: Place) -> Iterator[Iterable[str]]:
        match block.type:
            case BlockType.COMMAND:
                return
            case BlockType.CORRUPT:
                raise block.corrupt(expected="a whole block", actual="a torn block")
            case BlockType.DELETE:
                yield self._equal_keys(read_deletes(block).record_keys)
            case BlockType.HFILE_DATA if place is Place.METADATA_TABLE:
                content = block.content
                reader = HFileReader(content.open(), content.size_bytes, block.path)
                yield from self._in_hfile(reader, block.path)
            case BlockType.CDC_DATA:
                changes = read_rows(block)
                yield from self._in_rows(changes)
                if "record_key" in changes.column_names:
                    yield self._equal_keys(changes.column("record_key"))
                else:
                    yield from self._in_images(changes, block.path)
            case _:
                rows = read_rows(block, [RECORD_KEY])
                yield from self._in_rows(rows if rows.num_columns else read_rows(block))

    def _in_hfile(self, reader: HFileReader, path: str) -> Iterator[Iterable[str]]:
        """Search the keys of an HFile for record keys, and its values for texts."""
        for keys, values in reader.scan():
            names = keys.cast(pa.string())
            yield self._equal_keys(names) if _RECORD_INDEX in path else self._equal(names)
            if SECONDARY_INDEX_PREFIX in path:
                yield self._equal_keys(record_keys_in(names, path))
            data = byte_strings(values)
            yield self._literals.found_in(data.data[: data.offsets[-1]])

    def _in_rows(self, rows: pa.Table) -> Iterator[Iterable[str]]:
        """Search the record keys of rows, or all texts of rows without record keys."""
        if RECORD_KEY in rows.column_names:
            yield self._equal_keys(rows.column(RECORD_KEY).cast(pa.string()))
            return
        for column in rows.columns:
            for chunk in column.chunks:
                for texts in _texts_in(chunk):
                    yield from self._in_texts(texts)

    def _in_images(self, changes: pa.Table, path: str) -> Iterator[Iterable[str]]:
        """Search the record keys of the rows before and after changes, as far as they are logged.

        Raises:
            Unsupported: their record keys cannot be computed from them.
        """
        for name in _IMAGES:
            images = changes.column(name).drop_null() if name in changes.column_names else None
            if not images:
                continue
            if self.generator is None or self.generator.config.has_automatic_keys:
                message = f"{path} has rows without record keys, which do not depend on the columns"
                raise Unsupported(message)
            made = self.generator.record_keys(pa.Table.from_struct_array(images))
            yield self._equal_keys(made)

    def _in_texts(self, texts: pa.Array) -> Iterator[Iterable[str]]:
        if pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type):
            yield self._equal(texts.cast(pa.string()))
        data = byte_strings(texts.cast(pa.large_binary()))
        yield self._literals.found_in(data.data[: data.offsets[-1]])

    def _equal(self, values: pa.Array | pa.ChunkedArray) -> list[str]:
        matching: list[str] = values.filter(pc.is_in(values, value_set=self._wanted)).to_pylist()
        return matching

    def _equal_keys(self, stored: pa.Array | pa.ChunkedArray) -> set[str]:
        """Return the keys that some record keys are, in any encoding."""
        matching = stored.filter(pc.is_in(stored, value_set=self._encoded)).to_pylist()
        return {self._encodings[text] for text in matching}

    @cached_property
    def _encodings(self) -> dict[str, str]:
        """The key that each text encodes, which is the text itself if the text is a key."""
        exact = {key: key for key in self.record_keys}
        if self.generator is None:
            return exact
        encodings_of = self.generator.config.encodings_of
        return {text: key for key in exact for text in encodings_of(key)} | exact

    @cached_property
    def _encoded(self) -> pa.StringArray:
        return pa.array([*self._encodings], pa.string())

    @cached_property
    def _wanted(self) -> pa.StringArray:
        return pa.array(self.record_keys, pa.string())

    @cached_property
    def _literals(self) -> _Literals:
        return _Literals.of(self.record_keys)


@dataclass(frozen=True)
class _Literals:
    """The encodings of keys as strings, which are searched in bytes.

    Attributes:
        keys: the key of each literal.
        lengths: the lengths of the literals, in bytes, by the integer of their first 8 bytes.
        starts: these integers, uint64, sorted.
    """

    keys: Mapping[bytes, str]
    lengths: Mapping[int, Collection[int]]
    starts: npt.NDArray[np.uint64]

    @classmethod
    def of(cls, record_keys: Iterable[str]) -> _Literals:
        keys = {literal: key for key in record_keys for literal in _literals_of(key)}
        lengths: dict[int, set[int]] = defaultdict(set)
        for literal in keys:
            if len(literal) >= _LITERAL_BYTES:
                start = int.from_bytes(literal[:_LITERAL_BYTES], "little")
                lengths[start].add(len(literal))
        return cls(keys, lengths, np.array(sorted(lengths), np.uint64))

    def found_in(self, data: npt.NDArray[np.uint8]) -> set[str]:
        """Return the keys that the bytes contain as strings.

        Every 8 bytes are compared as one integer with the starts of all literals. Where they
        match, a dictionary is asked, because keys such as customer-17 have the same first 8 bytes.
        So the time hardly grows with the number of keys.
        """
        found: set[str] = set()
        if not len(self.starts):
            return found
        for shift in range(_LITERAL_BYTES):
            words = data[shift : len(data) - (len(data) - shift) % _LITERAL_BYTES]
            integers = words.view("<u8")
            places = np.searchsorted(self.starts[:-1], integers)
            for at in np.flatnonzero(self.starts[places] == integers):
                begin = shift + int(at) * _LITERAL_BYTES
                for length in self.lengths[int(integers[at])]:
                    key = self.keys.get(data[begin : begin + length].tobytes())
                    if key is not None:
                        found.add(key)
        return found


def _literals_of(key: str) -> set[bytes]:
    """Return a key as a string in JSON, with and without escapes, and in binary Avro."""
    text = key.encode()
    json_texts = {json.dumps(key).encode(), json.dumps(key, ensure_ascii=False).encode()}
    return {*json_texts, zigzag(len(text)) + text}


def _texts_in(values: pa.Array) -> Iterator[pa.Array]:
    """Yield the strings and byte strings of an array, at any depth."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        yield from _texts_in(values.dictionary)
    elif pa.types.is_string(kind) or pa.types.is_binary(kind) or _is_large(kind):
        yield values
    elif pa.types.is_struct(kind):
        for child in values.flatten():
            yield from _texts_in(child)
    elif pa.types.is_map(kind):
        yield from _texts_in(values.keys)
        yield from _texts_in(values.items)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _texts_in(values.flatten())


def _is_large(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(kind) or pa.types.is_large_binary(kind))
