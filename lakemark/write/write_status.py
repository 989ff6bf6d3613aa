"""The status that the writer of a file returns when the file is closed."""

from __future__ import annotations

from dataclasses import dataclass

from lakemark.model.column_ranges import ColumnRanges


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """A complete, visible file, with the numbers for the commit's ``WriteStat``.

    Attributes:
        size_bytes: size of the file.
        num_writes: rows in it, deletes not counted, as in Apache Hudi.
        num_deletes: records of its delete blocks; 0 for a base file.
        num_data_blocks: data blocks of a log file; 0 for a base file.
        num_delete_blocks: delete blocks of a log file; 0 for a base file.
        column_ranges: ranges of the columns of its rows; None if they were not requested.
    """

    size_bytes: int
    num_writes: int
    num_deletes: int = 0
    num_data_blocks: int = 0
    num_delete_blocks: int = 0
    column_ranges: ColumnRanges | None = None
