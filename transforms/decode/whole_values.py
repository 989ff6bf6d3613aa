"""Decodes values that are not divided into fields: each whole value fills one column."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from lakemark.errors import InvalidConfig
from lakemark.schema.evolution import NOTHING_PROPOSED, Path, Proposal
from transforms.decode.decode_result import DecodeResult
from transforms.decode.decoder import ColumnDecoder
from transforms.decode.json_screening import find_utf8
from transforms.reject_reason import RejectCode, RejectReason


@dataclass(frozen=True, slots=True)
class WholeValueDecoder(ColumnDecoder):
    """Decodes each value to one column, of text or bytes. An empty value is a value.

    Attributes:
        column: the column that the values fill. All other columns are null.
    """

    column: str = field(kw_only=True)

    def check_type(self, path: str, data_type: pa.DataType) -> None:
        """Check that a value can fill a column, if it is the column of the values."""
        if path == self.column and data_type not in (pa.string(), pa.binary()):
            message = f"column {path!r}: a whole value is string or binary, not {data_type}"
            raise InvalidConfig(message)

    def decode(self, values: pa.Array | pa.ChunkedArray) -> DecodeResult:
        """See ``ColumnDecoder``. Text that is not UTF-8 is rejected."""
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        wanted = self.schema.field(self.column).type
        is_valid = values.is_valid().to_numpy(zero_copy_only=False)
        reasons = [RejectReason(RejectCode.INVALID_MESSAGE, "the value is null")]
        accepted = is_valid
        if pa.types.is_string(wanted):
            accepted = is_valid & find_utf8(values)
            reasons.append(RejectReason(RejectCode.INVALID_MESSAGE, "the value is not UTF-8"))
        kept = values.filter(pa.array(accepted)).cast(wanted)
        columns = [
            kept if one.name == self.column else pa.nulls(len(kept), one.type)
            for one in self.rows_schema
        ]
        rejected = np.flatnonzero(~accepted)
        return DecodeResult(
            rows=pa.table(columns, schema=self.rows_schema),
            accepted=np.flatnonzero(accepted),
            rejected=rejected,
            reasons=[reasons[int(is_valid[index])] for index in rejected.tolist()],
        )

    def propose_columns(self, values: pa.Array | pa.ChunkedArray) -> Proposal:
        """Return no changes, because a value has no fields."""
        return NOTHING_PROPOSED

    def find_wider_paths(self, values: pa.Array | pa.ChunkedArray) -> set[Path]:
        """Return no paths, because a value is no number."""
        return set()
