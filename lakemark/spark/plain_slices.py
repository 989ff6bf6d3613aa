"""Selects file slices that Spark can read directly.

Such a slice is a single Parquet file with the table's current columns and types. The schema of a
file is in the metadata of the commit that wrote the file, and is unknown if the commit was
archived. If a file's schema is unknown, or differs from the current schema, its values may have to
be converted. Spark converts values differently from lakemark, so Spark must not read such a file.
"""

from __future__ import annotations

from functools import cache

import pyarrow as pa

from lakemark.config import keys
from lakemark.errors import SnapshotChanged
from lakemark.model.file_slice import FileSlice
from lakemark.model.meta_columns import without_meta_columns
from lakemark.operations.open_table import OpenTable
from lakemark.read.scan import Scan
from lakemark.schema import avro
from lakemark.spark.types import is_read_alike


def plain_slices(table: OpenTable, scan: Scan) -> list[FileSlice]:
    """Return the slices of a scan for which Spark returns exactly the same rows as lakemark.

    The metadata of each commit that wrote one of the files is read once.

    Raises:
        CorruptData: a commit's metadata is damaged.
    """
    schema = scan.reader.schema
    if scan.reader.path_columns is not None:
        return []
    if not all(is_read_alike(schema.field(name).type) for name in scan.columns_read):
        return []
    wanted = without_meta_columns(schema)

    @cache
    def has_wanted_schema(instant: str) -> bool:
        written = _schema_of_commit(table, instant)
        return written is not None and without_meta_columns(written).equals(wanted)

    return [
        one
        for one in scan.slices
        if one.base is not None
        and not one.logs
        and one.base.name.extension == "parquet"
        and not is_streaming_sink_file(one.base.path)
        and has_wanted_schema(one.base.name.instant)
    ]


def is_streaming_sink_file(path: str) -> bool:
    """Return whether Spark silently skips a file, because its path looks like a streaming sink's.

    Source: ``FileStreamSink.ancestorIsMetadataDirectory`` of Spark.
    """
    return "_spark_metadata" in path.split("/")


def _schema_of_commit(table: OpenTable, requested_at: str) -> pa.Schema | None:
    """Return the columns of the files that a commit wrote; None if they are unknown."""
    commit = table.timeline.find(requested_at)
    if commit is None or not (commit.is_completed and commit.action.is_ingest):
        return None
    try:
        stored = table.store.read_commit(commit).extra_metadata.get(keys.SCHEMA)
    except SnapshotChanged:
        return None
    return avro.to_arrow(stored) if stored else None
