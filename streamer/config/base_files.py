"""``base_files``: how the files of the table are compressed and divided."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from lakemark.config.parquet_settings import (
    MAX_FILE_BYTES,
    MAX_ROW_GROUP_BYTES,
    PAGE_BYTES,
    PARQUET_DEFAULTS,
    ROW_GROUP_BYTES,
    ParquetSettings,
    level_problem,
)
from streamer.config.errors import Problem
from streamer.config.section import Section


class BaseFilesConfig(Section):
    """The Parquet files of the table. The settings apply to files that this pipeline writes.

    Files that exist already are not rewritten. ``compression``, ``compression_level``,
    ``page_bytes`` and ``dictionary`` also apply to the Parquet blocks of log files. The dead-letter
    table always uses the defaults.
    """

    compression: Literal["zstd", "snappy", "gzip", "lz4_raw", "uncompressed"] = "zstd"
    """The codec. Apache Hudi's ``hoodie.parquet.compression.codec`` has the same names; its default
    is ``gzip``."""

    compression_level: int | None = None
    """The level of ``zstd`` (1 to 22) or ``gzip`` (1 to 9): a higher level makes files smaller and
    writing slower. Default: 1 for ``zstd``, 9 for ``gzip``."""

    row_group_bytes: Annotated[int, Field(ge=1 << 20, le=MAX_ROW_GROUP_BYTES)] = ROW_GROUP_BYTES
    """The largest row group, in bytes of memory before encoding. Each task holds one row group in
    memory. Filters skip whole row groups, so smaller row groups make selective queries faster, and
    files larger. Apache Hudi's ``hoodie.parquet.block.size`` counts encoded bytes instead."""

    page_bytes: Annotated[int, Field(ge=8 << 10, le=16 << 20)] = PAGE_BYTES
    """The size in bytes at which a page ends, before compression, as with Apache Hudi's
    ``hoodie.parquet.page.size``. A page also ends after 20,000 rows. Spark skips single pages by
    their statistics."""

    dictionary: bool = True
    """Whether columns with few distinct values are dictionary-encoded, as with Apache Hudi's
    ``hoodie.parquet.dictionary.enabled``."""

    max_file_bytes: Annotated[int, Field(ge=1 << 20, le=MAX_FILE_BYTES)] = (
        PARQUET_DEFAULTS.max_file_bytes
    )
    """The size at which a base file receives no more new keys, as with Apache Hudi's
    ``hoodie.parquet.max.file.size``. This setting and the next two apply to tables without
    buckets, such as those of ``table.operation: insert``, of ``table.index: lookup``, and of Apache
    Hudi with its default index. In other tables, ``table.buckets`` decides how large files become.
    """

    small_file_bytes: Annotated[int, Field(ge=0, le=MAX_FILE_BYTES)] = (
        PARQUET_DEFAULTS.small_file_bytes
    )
    """Smaller base files receive new keys before file groups are created, as with Apache Hudi's
    ``hoodie.parquet.small.file.limit``. 0: each batch with new keys creates file groups."""

    record_bytes: Annotated[int, Field(ge=1, le=MAX_FILE_BYTES)] = PARQUET_DEFAULTS.record_bytes
    """The size of a record in a base file, as long as no commit shows it, as with Apache Hudi's
    ``hoodie.copyonwrite.record.size.estimate``. The newest of the last 20 commits whose base files
    are together larger than ``small_file_bytes`` shows the size."""

    def parquet_settings(self) -> ParquetSettings:
        """Return the settings of the writer of base files."""
        return ParquetSettings(
            compression=self.compression,
            compression_level=self.compression_level,
            row_group_bytes=self.row_group_bytes,
            page_bytes=self.page_bytes,
            dictionary=self.dictionary,
            max_file_bytes=self.max_file_bytes,
            small_file_bytes=self.small_file_bytes,
            record_bytes=self.record_bytes,
        )


def base_file_problems(base_files: BaseFilesConfig) -> Iterator[Problem]:
    """Yield a problem if the codec does not have the compression level."""
    level = base_files.compression_level
    problem = level_problem(base_files.compression, level)
    if problem is not None:
        yield Problem("base_files.compression_level", f"{level}: {problem}")
