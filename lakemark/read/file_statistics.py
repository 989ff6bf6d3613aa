"""Statistics of files, which a reader uses before it opens them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa


def statistics_schema(of_what: str, data_type: pa.DataType) -> pa.Schema:
    """Columns of the statistics of one column of the table.

    Args:
        of_what: the first column, which names the file or partition of the statistics.
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
    """Statistics by file, from a source that may not have all of them.

    A file without a row has no statistics. ``min`` and ``max`` are bounds, not necessarily values
    that occur; both are null if the file has no value. An unknown count is null.
    """

    def of_column(
        self, column: str, data_type: pa.DataType, partitions: Sequence[str] | None = None
    ) -> pa.Table:
        """Statistics of one column, for the files that have any.

        Args:
            column: its name; for a field inside a struct the path with dots.
            data_type: its current type. Statistics of values of an older type are included if the
                change of type keeps their order.
            partitions: paths of the partitions to search; all when None.

        Returns:
            ``statistics_schema("file_name", data_type)``, a row for each file.
        """
        ...
