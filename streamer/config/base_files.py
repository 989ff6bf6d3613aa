"""``base_files``: how the base files of the table are compressed and divided."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from lakemark.config.parquet_settings import (
    MAX_ROW_GROUP_BYTES,
    PAGE_BYTES,
    ROW_GROUP_BYTES,
    ParquetSettings,
    level_problem,
)
from streamer.config.errors import Problem
from streamer.config.section import Section


class BaseFilesConfig(Section):
    """The Parquet files of the table. The settings apply to files that this pipeline writes.

    Files that exist already are not rewritten. Log files and the dead-letter table always use the
    defaults.
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

    def parquet_settings(self) -> ParquetSettings:
        """Return the settings of the writer of base files."""
        return ParquetSettings(
            compression=self.compression,
            compression_level=self.compression_level,
            row_group_bytes=self.row_group_bytes,
            page_bytes=self.page_bytes,
            dictionary=self.dictionary,
        )


def base_file_problems(base_files: BaseFilesConfig) -> Iterator[Problem]:
    """Yield a problem if the codec does not have the compression level."""
    level = base_files.compression_level
    problem = level_problem(base_files.compression, level)
    if problem is not None:
        yield Problem("base_files.compression_level", f"{level}: {problem}")
