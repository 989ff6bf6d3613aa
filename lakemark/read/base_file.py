"""Reads the rows of a base file as a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakemark.codec.hfile.file_info import SCHEMA
from lakemark.codec.hfile.reader import HFileReader
from lakemark.errors import CorruptData, HudiError, SnapshotChanged, Unsupported
from lakemark.log.hfile_rows import read_hfile_rows
from lakemark.log.parquet_format import (
    ValueCounts,
    check_value_counts,
    open_parquet,
    repetitive_texts,
)
from lakemark.model.file_slice import BaseFile
from lakemark.read.projection import conform, project_schema
from lakemark.read.row_filter import filter_rows, referenced_columns, select_row_groups
from lakemark.schema.dictionaries import with_encoded
from lakemark.storage.parallel_requests import request_all
from lakemark.storage.storage import NotFound, Storage

#: Rows decoded at a time: some tens of megabytes of ordinary records.
BATCH_ROWS = 1 << 17


def read_base_file(
    storage: Storage,
    base: BaseFile,
    schema: pa.Schema,
    condition: pc.Expression | None = None,
    batch_rows: int = BATCH_ROWS,
    *,
    keeps_dictionaries: bool = False,
) -> Iterator[pa.Table]:
    """Yield the rows of a base file in stored order, converted to ``schema``.

    Of a Parquet file, only the columns of ``schema`` are read.

    Args:
        storage: the table's root.
        base: the file.
        schema: columns of the result.
        condition: a condition on the rows; row groups of Parquet without a matching row are
            skipped. To find them, the columns of the condition are read first.
        batch_rows: number of rows of a Parquet file that are decoded at a time.
        keeps_dictionaries: whether columns of texts that are stored with a dictionary are
            dictionary-encoded in the result.

    Raises:
        SnapshotChanged: the file no longer exists.
        CorruptData: the file violates its format, or its columns do not fit ``schema``.
        Unsupported: the base file is neither Parquet nor HFile.
    """
    if base.name.extension == "hfile":
        yield from _read_hfile(storage, base, schema)
        return
    if base.name.extension != "parquet":
        message = f"{base.path} is neither Parquet nor HFile; lakemark reads no other base files"
        raise Unsupported(message)
    with open_data_file(storage, base.path) as stream, _corrupt_if_not_parquet(base.path):
        file = open_parquet(stream)
        if keeps_dictionaries:
            texts = [field.name for field in schema if pa.types.is_string(field.type)]
            encoded = [name for name in repetitive_texts(file) if name in texts]
            file = open_parquet(stream, footer=file.metadata, encoded=encoded)
            schema = with_encoded(schema, encoded)
        stored = set(file.schema_arrow.names)
        present = [name for name in schema.names if name in stored]
        # Read at least one column, because a batch without columns has no number of rows.
        read = present or file.schema_arrow.names[:1]
        groups: Sequence[int] = range(file.num_row_groups)
        if condition is not None:
            if _has_comparable_statistics(condition, file.schema_arrow, schema):
                groups = select_row_groups(condition, stream, schema)
            groups = [g for g in groups if _has_match(file, g, condition, schema, base.path)]
        counts = ValueCounts()
        for batch in file.iter_batches(batch_rows, row_groups=groups, columns=read):
            counts.add(batch)
            yield conform(pa.Table.from_batches([batch]), schema, base.path)
        counts.check(file, groups)


def read_footer(storage: Storage, base: BaseFile) -> pq.FileMetaData:
    """Return the footer of a Parquet file.

    Raises:
        SnapshotChanged: the file no longer exists.
        CorruptData: the file is not a Parquet file.
    """
    with open_data_file(storage, base.path) as stream, _corrupt_if_not_parquet(base.path):
        return pq.read_metadata(stream)


def _has_match(
    file: pq.ParquetFile, group: int, condition: pc.Expression, schema: pa.Schema, path: str
) -> bool:
    """Return whether a row group may have a matching row; this reads the condition's columns.

    The result is always true if the condition has more than half of the columns of ``schema``,
    because the check would then cost too much.
    """
    deciding = project_schema(schema, referenced_columns(condition, schema))
    stored = [name for name in deciding.names if name in file.schema_arrow.names]
    if not stored or 2 * len(stored) > len(schema):
        return True
    rows = file.read_row_group(group, columns=stored)
    check_value_counts(rows, file, [group])
    return bool(filter_rows(conform(rows, deciding, path), condition).num_rows)


def _has_comparable_statistics(
    condition: pc.Expression, stored: pa.Schema, schema: pa.Schema
) -> bool:
    """Return whether the statistics of the file can decide the condition.

    They must have the types that the condition compares. Bounds of floats cannot decide, because
    they do not show whether there are NaN, and do not distinguish 0.0 from -0.0.
    """
    names = [name for name in referenced_columns(condition, schema) if name in stored.names]
    types = [(stored.field(name).type, schema.field(name).type) for name in names]
    return all(one == other and not _has_floats(other) for one, other in types)


def _has_floats(kind: pa.DataType) -> bool:
    """Return whether a type is a float, or contains floats."""
    fields = [kind.field(n) for n in range(kind.num_fields)]
    return pa.types.is_floating(kind) or any(_has_floats(field.type) for field in fields)


def _read_hfile(storage: Storage, base: BaseFile, schema: pa.Schema) -> Iterator[pa.Table]:
    with open_data_file(storage, base.path) as stream:
        file = HFileReader(stream, base.size_bytes, base.path)
        for rows in read_hfile_rows(file, _read_schema(file, base), base.path):
            yield conform(rows, schema, base.path)


def _read_schema(file: HFileReader, base: BaseFile) -> dict[str, object]:
    stored = file.file_info.get(SCHEMA, b"")
    try:
        schema = json.loads(stored)
    except (ValueError, RecursionError):
        schema = None
    if not isinstance(schema, dict):
        expected, found = "an Avro schema in the file info", repr(stored[:80])
        raise CorruptData(base.path, None, expected, found)
    return schema


@contextmanager
def open_data_file(storage: Storage, path: str) -> Iterator[BinaryIO]:
    """Open a data file.

    Raises:
        SnapshotChanged: the file no longer exists.
    """
    try:
        with storage.open(path) as stream:
            yield stream
    except NotFound as error:
        raise _removed(path) from error


@contextmanager
def open_data_files(storage: Storage, paths: Sequence[str]) -> Iterator[Mapping[str, BinaryIO]]:
    """Open several data files, at the same time if the store is remote; return them by path.

    Raises:
        SnapshotChanged: a file no longer exists.
    """

    def open_one(path: str) -> AbstractContextManager[BinaryIO] | None:
        try:
            return storage.open(path)
        except NotFound:
            return None

    opened = dict(zip(paths, request_all(storage, open_one, paths), strict=True))
    with ExitStack() as open_files:
        files = {p: open_files.enter_context(one) for p, one in opened.items() if one is not None}
        for path in paths:
            if path not in files:
                raise _removed(path)
        try:
            yield files
        except NotFound as error:
            raise _removed(str(error)) from error


def _removed(path: str) -> SnapshotChanged:
    return SnapshotChanged(
        f"{path} was removed while the snapshot was being read; list the table again, and if the "
        "file is still missing then, look for damage: lakemark table check TABLE"
    )


@contextmanager
def _corrupt_if_not_parquet(path: str) -> Iterator[None]:
    try:
        yield
    except HudiError:
        raise
    except (pa.ArrowException, ValueError, KeyError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the store failed; the file may be intact
        raise CorruptData(path, None, "a Parquet file", str(error)) from error
