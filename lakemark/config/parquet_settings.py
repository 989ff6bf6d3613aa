"""How the base files of a table are written. No setting changes the rows that readers find."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from lakemark.errors import InvalidConfig


class Compression(StrEnum):
    """A codec that Apache Hudi reads, by its name in ``hoodie.parquet.compression.codec``."""

    ZSTD = "zstd"
    SNAPPY = "snappy"
    GZIP = "gzip"
    LZ4_RAW = "lz4_raw"
    UNCOMPRESSED = "uncompressed"


#: The smallest and the largest compression level of the codecs that have levels.
LEVELS = {Compression.ZSTD: (1, 22), Compression.GZIP: (1, 9)}

#: Default size of a row group, in bytes of Arrow memory. Filters skip whole row groups by their
#: statistics, so smaller row groups make filters faster but files larger. Compared with row groups
#: of 64 MiB, a scan takes the same time, a filter for one row in a hundred takes half the time, and
#: files are 4 % larger. With 16 MiB, files would be 12 % larger.
ROW_GROUP_BYTES = 32 << 20

#: Largest size of a row group that may be configured, because a writer holds a row group in memory.
MAX_ROW_GROUP_BYTES = 256 << 20

#: Default size of a page before compression, as in Apache Hudi (``hoodie.parquet.page.size``).
PAGE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetSettings:
    """Compression, sizes and encodings of base files.

    Attributes:
        compression: one of the codecs in ``Compression``.
        compression_level: the level of ``zstd`` (1 to 22) or ``gzip`` (1 to 9); None for the
            default level of Arrow, which is 1 for ``zstd`` and 9 for ``gzip``.
        row_group_bytes: the largest row group, in bytes of Arrow memory; at most 256 MiB. A single
            row may be larger.
        page_bytes: the size in bytes at which a page ends, before compression. A page also ends
            after 20,000 rows.
        dictionary: whether columns with few distinct values are dictionary-encoded.

    Raises:
        InvalidConfig: a value is not allowed; the message lists the allowed values.
    """

    compression: str = Compression.ZSTD
    compression_level: int | None = None
    row_group_bytes: int = ROW_GROUP_BYTES
    page_bytes: int = PAGE_BYTES
    dictionary: bool = True

    def __post_init__(self) -> None:
        if self.compression not in list(Compression):
            message = f"compression is {self.compression!r}; choose one of {', '.join(Compression)}"
            raise InvalidConfig(message)
        problem = level_problem(self.compression, self.compression_level)
        if problem is not None:
            message = f"compression_level is {self.compression_level!r}; {problem}"
            raise InvalidConfig(message)
        for name in ("row_group_bytes", "page_bytes"):
            size = getattr(self, name)
            if type(size) is not int or not 1 <= size <= MAX_ROW_GROUP_BYTES:
                message = f"{name} is {size!r}; choose a number from 1 to {MAX_ROW_GROUP_BYTES}"
                raise InvalidConfig(message)


def level_problem(compression: str, level: object) -> str | None:
    """Return why a codec has no such compression level, with the remedy; None if it has."""
    if level is None:
        return None
    known = LEVELS.get(Compression(compression))
    if known is None:
        return f"{compression} has no levels; remove it, or choose zstd or gzip"
    first, last = known
    is_known = type(level) is int and first <= level <= last
    return None if is_known else f"{compression} has the levels {first} to {last}"


#: The settings of a writer that is not configured.
PARQUET_DEFAULTS = ParquetSettings()
