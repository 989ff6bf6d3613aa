"""What the decoders of values with a writer's schema share: Avro and Protocol Buffers."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Generic

import numpy as np
import pyarrow as pa

from lakemark.codec.byte_strings import byte_strings
from lakemark.errors import InvalidConfig
from lakemark.schema.avro import to_avro
from lakemark.schema.evolution import Path, Proposal
from transforms.decode.confluent_header import ids_of_valid
from transforms.decode.decoder import ColumnDecoder
from transforms.decode.framing import Framing, GroupT
from transforms.decode.schema_differences import Differences, requested_columns, wider_paths
from transforms.decode.written_rows import find_schema_differences
from transforms.reject_reason import RejectReason


@dataclass(frozen=True, slots=True)
class FramedDecoder(ColumnDecoder, ABC, Generic[GroupT]):
    """Decodes values that were written with schemas of their own.

    Attributes:
        framing: how values refer to their writer's schema.
        record_limit_bytes: how many bytes the columns of one record may take; a larger record is
            rejected.
    """

    #: The beginning of the message about a type that no value of the format becomes.
    not_decoded: ClassVar[str]

    framing: Framing[GroupT] = field(kw_only=True)
    record_limit_bytes: int = field(default=64 << 20, kw_only=True)

    def check_type(self, path: str, data_type: pa.DataType) -> None:
        """Check that a table can have this column type; values are decoded to every such type."""
        try:
            to_avro(pa.schema([pa.field("c", data_type)]), "t")
        except InvalidConfig:
            message = f"column {path!r}: {self.not_decoded} to {data_type}"
            raise InvalidConfig(message) from None

    def propose_columns(self, values: pa.Array | pa.ChunkedArray) -> Proposal:
        """See ``ColumnDecoder``."""
        return requested_columns(self._differences(values), self.policy, self.unknown_fields)

    def find_wider_paths(self, values: pa.Array | pa.ChunkedArray) -> set[Path]:
        """See ``ColumnDecoder``."""
        return wider_paths(self._differences(values), self.policy)

    def schema_ids(self, values: pa.ChunkedArray) -> pa.Array | None:
        """See ``ColumnDecoder``. Only values in the Confluent wire format have ids."""
        return ids_of_valid(values, self.framing.schema_ids(byte_strings(values.cast(pa.binary()))))

    def groups(self, chunk: pa.Array) -> Iterator[GroupT]:
        """Group a ``binary`` column by the writer's schema, without null and empty values."""
        strings = byte_strings(chunk)
        is_valid = chunk.is_valid().to_numpy(zero_copy_only=False)
        return self.framing.groups(strings, np.flatnonzero(is_valid & (strings.lengths > 0)))

    def _differences(self, values: pa.Array | pa.ChunkedArray) -> list[Differences]:
        found: dict[str, Differences] = {}
        for chunk in binary_chunks(values):
            for group in self.groups(chunk):
                if not isinstance(group.schema, RejectReason):
                    fields = group.schema.fields
                    found[group.schema.name] = find_schema_differences(self, fields)
        return list(found.values())


def binary_chunks(values: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    """Return the chunks of a column, as ``binary`` columns."""
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    return [chunk.cast(pa.binary()) for chunk in chunks]
