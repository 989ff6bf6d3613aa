"""How the files of a table are written. No setting changes the rows that readers find."""

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

#: Largest size that may be configured for a base file: 1 TiB.
MAX_FILE_BYTES = 1 << 40

#: Default size of a page before compression, as in Apache Hudi (``hoodie.parquet.page.size``).
PAGE_BYTES = 1 << 20

#: Smallest size of a page. If pages have at most 5 bytes, Arrow 26 cannot read the lists and maps
#: that it has written with a dictionary.
MIN_PAGE_BYTES = 64

#: The sizes among the settings, with the smallest and the largest value.
_SIZES = (
    ("row_group_bytes", 1, MAX_ROW_GROUP_BYTES),
    ("page_bytes", MIN_PAGE_BYTES, MAX_ROW_GROUP_BYTES),
    ("max_file_bytes", 1, MAX_FILE_BYTES),
    ("small_file_bytes", 0, MAX_FILE_BYTES),
    ("record_bytes", 1, MAX_FILE_BYTES),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetSettings:
    """Compression, sizes and encodings of base files.

    Codec, level, page size and dictionaries also apply to the Parquet blocks of log files, as in
    Apache Hudi.

    The last three settings apply to tables without a bucket index. In other tables, the number of
    buckets decides how large files become.

    Attributes:
        compression: one of the codecs in ``Compression``.
        compression_level: the level of ``zstd`` (1 to 22) or ``gzip`` (1 to 9); None for the
            default level of Arrow, which is 1 for ``zstd`` and 9 for ``gzip``.
        row_group_bytes: the largest row group, in bytes of Arrow memory; at most 256 MiB. A single
            row may be larger.
        page_bytes: the size in bytes at which a page ends, before compression; at least 64. A page
            also ends after 20,000 rows.
        dictionary: whether columns with few distinct values are dictionary-encoded.
        max_file_bytes: the size at which a base file receives no more new keys
            (``hoodie.parquet.max.file.size``).
        small_file_bytes: smaller base files receive new keys before file groups are created
            (``hoodie.parquet.small.file.limit``); 0 to create file groups in each commit.
        record_bytes: the size of a record in a base file, as long as no commit shows it
            (``hoodie.copyonwrite.record.size.estimate``).

    Raises:
        InvalidConfig: a value is not allowed; the message lists the allowed values.
    """

    compression: str = Compression.ZSTD
    compression_level: int | None = None
    row_group_bytes: int = ROW_GROUP_BYTES
    page_bytes: int = PAGE_BYTES
    dictionary: bool = True
    max_file_bytes: int = 120 << 20
    small_file_bytes: int = 100 << 20
    record_bytes: int = 1024

    def __post_init__(self) -> None:
        if self.compression not in list(Compression):
            message = f"compression is {self.compression!r}; choose one of {', '.join(Compression)}"
            raise InvalidConfig(message)
        problem = level_problem(self.compression, self.compression_level)
        if problem is not None:
            message = f"compression_level is {self.compression_level!r}; {problem}"
            raise InvalidConfig(message)
        for name, least, largest in _SIZES:
            size = getattr(self, name)
            if type(size) is not int or not least <= size <= largest:
                message = f"{name} is {size!r}; choose a number from {least} to {largest}"
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
