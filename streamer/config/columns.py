"""``decode`` of values that already have columns: rows of tables, and of some files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import pyarrow as pa

from streamer.config.decode import DecodeConfig
from transforms.decode.columns import ColumnsDecoder
from transforms.decode.decoder import ColumnDecoder


class ColumnsDecodeConfig(DecodeConfig):
    """Rows of another table, or of files of Parquet or Avro.

    Columns are matched by name. With ``decode.schema: infer``, a new table gets the columns of the
    other table, or of the first file. These settings are added to those of ``decode``.
    """

    format: Literal["columns"]
    """The format of the values."""

    def decoder(self, columns: pa.Schema, key_columns: Sequence[str] = ()) -> ColumnDecoder:
        """See ``DecodeConfig``."""
        return ColumnsDecoder(columns, *self.shared_arguments())
