"""Which file slices Spark can read by itself: one Parquet file in the columns of the result.

The schema in a commit's metadata is that of the files it wrote. Where it is not known, as with
commits that were archived, or is another one, the file may have to be read into the columns of
today, which Spark's reader does otherwise than this project's.
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
from lakemark.spark.types import has_one_reading


def plain_slices(table: OpenTable, scan: Scan) -> list[FileSlice]:
    """The slices of a scan that Spark reads as this project does.

    Reads the metadata of each commit that wrote one of the files, once.

    Raises:
        CorruptData: a commit's metadata is damaged.
    """
    schema = scan.reader.schema
    if scan.reader.path_columns is not None:
        return []
    if not all(has_one_reading(schema.field(name).type) for name in scan.columns_read):
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
        and not lies_in_a_sink(one.base.path)
        and has_wanted_schema(one.base.name.instant)
    ]


def lies_in_a_sink(path: str) -> bool:
    """Whether Spark silently passes a file over, as one of a streaming sink's own.

    Source: ``FileStreamSink.ancestorIsMetadataDirectory`` of Spark.
    """
    return "_spark_metadata" in path.split("/")


def _schema_of_commit(table: OpenTable, requested_at: str) -> pa.Schema | None:
    """The columns of the files of a commit; None where they are not known."""
    commit = table.timeline.find(requested_at)
    if commit is None or not (commit.is_completed and commit.action.is_ingest):
        return None
    try:
        stored = table.store.read_commit(commit).extra_metadata.get(keys.SCHEMA)
    except SnapshotChanged:
        return None
    return avro.to_arrow(stored) if stored else None
