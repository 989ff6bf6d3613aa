"""What a reader may know of files before it opens them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa


def statistics_schema(of_what: str, data_type: pa.DataType) -> pa.Schema:
    """Columns of statistics of one column of the table.

    Args:
        of_what: the first column, which names what the statistics are of.
        data_type: the column's type.
    """
    return pa.schema(
        [
            pa.field(of_what, pa.string(), nullable=False),
            pa.field("min", data_type),
            pa.field("max", data_type),
            pa.field("null_count", pa.int64()),
            pa.field("value_count", pa.int64()),
        ]
    )


class FileStatistics(Protocol):
    """Statistics by file, where some source of them has any.

    No row means that nothing is known. ``min`` and ``max`` are bounds, not always values that
    occur; both are null when no value is in the file. A count that is not known is null.
    """

    def of_column(
        self, column: str, data_type: pa.DataType, partitions: Sequence[str] | None = None
    ) -> pa.Table:
        """Statistics of one column in the files that have any.

        Args:
            column: its name; of a field inside a struct the path with dots.
            data_type: its type now. Statistics of values that were written with another type are
                there if that keeps their order.
            partitions: paths of the partitions whose files are asked for; all when None.

        Returns:
            ``statistics_schema("file_name", data_type)``, a row for each file.
        """
        ...
