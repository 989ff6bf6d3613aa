"""What the writer of a file has to say once the file is closed."""

from __future__ import annotations

from dataclasses import dataclass

from lakemark.model.column_ranges import ColumnRanges


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """A whole, visible file; the numbers in it that a commit's ``WriteStat`` asks for.

    Attributes:
        size_bytes: of the file.
        num_writes: rows in it, deletes not counted, as Apache counts them.
        num_deletes: records of its delete blocks; 0 for a base file.
        num_data_blocks: data blocks of a log file; 0 for a base file.
        num_delete_blocks: delete blocks of a log file; 0 for a base file.
        column_ranges: what the columns of its rows hold; None when nobody asked.
    """

    size_bytes: int
    num_writes: int
    num_deletes: int = 0
    num_data_blocks: int = 0
    num_delete_blocks: int = 0
    column_ranges: ColumnRanges | None = None
