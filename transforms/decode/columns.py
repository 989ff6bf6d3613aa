"""Decodes values that already have columns: the rows of a file of Parquet or Avro.

The values are structs (``transforms.raw_records``). Fields are matched by name, and converted as
the fields of Avro records are (``transforms.decode.avro``), with the same policies. All values of
one call have the same fields. So a field without a column is unknown in all of them, even if it is
null.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakemark.errors import InvalidConfig
from lakemark.schema.avro import to_avro
from lakemark.schema.evolution import Path, Proposal, Sighting
from transforms.decode.decode_result import DecodeResult
from transforms.decode.decoder import ColumnDecoder
from transforms.decode.written_rows import WrittenRows, find_schema_differences


@dataclass(frozen=True, slots=True)
class ColumnsDecoder(ColumnDecoder):
    """Decodes structs."""

    def check_type(self, path: str, data_type: pa.DataType) -> None:
        """Check that a table can have this column type."""
        try:
            to_avro(pa.schema([pa.field("c", data_type)]), "t")
        except InvalidConfig:
            message = f"column {path!r}: a table cannot store {data_type}"
            raise InvalidConfig(message) from None

    def decode(self, values: pa.Array | pa.ChunkedArray) -> DecodeResult:
        """See ``ColumnDecoder``. The values are structs, of which none is null."""
        rows = WrittenRows(self)
        found = find_schema_differences(self, values.type)
        fault = rows.find_unknown_fault(found)
        begin = 0
        for chunk in _chunks(values):
            indices = np.arange(begin, begin + len(chunk), dtype=np.int64)
            begin += len(chunk)
            if fault is not None:
                rows.reject_all(indices, fault)
            elif len(chunk):
                rows.keep(pa.Table.from_struct_array(chunk), indices, found)
        return rows.finish()

    def propose_columns(self, values: pa.Array | pa.ChunkedArray) -> Proposal:
        """See ``ColumnDecoder``."""
        found = find_schema_differences(self, values.type)
        requested: set[Sighting] = set()
        if self.unknown_fields == "evolve":
            requested |= found.unknown
        if self.policy.wider_values == "evolve":
            requested |= found.wider
        return self.policy.to_columns(requested)

    def find_wider_paths(self, values: pa.Array | pa.ChunkedArray) -> set[Path]:
        """See ``ColumnDecoder``."""
        wider = find_schema_differences(self, values.type).wider
        return {path for path, _ in self.policy.to_columns(wider)}


def _chunks(values: pa.Array | pa.ChunkedArray) -> Sequence[pa.Array]:
    return values.chunks if isinstance(values, pa.ChunkedArray) else [values]
