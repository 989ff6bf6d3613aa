"""Decodes Kafka values that are messages of Protocol Buffers to columns.

All values of one type are read together, field by field (``columns``). Then they are converted to
the types of the table's columns (``transforms.decode.column_conversion``), by the same rules as the
values of Avro records. ``types`` lists what each type becomes.

A value is rejected if it is not a message of its type; the reason names the field. The bytes of
fields that no column needs are not looked at. The policy decides about fields without a column as
for Avro: a field is unknown because its type has it, even if no message contains it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from lakemark.codec.byte_strings import ByteStrings, byte_strings
from lakemark.errors import InvalidConfig
from lakemark.schema.avro import to_avro
from lakemark.schema.evolution import Path, Proposal
from transforms.decode.confluent_header import ids_of_valid
from transforms.decode.decode_result import DecodeResult, Indices
from transforms.decode.decoder import ColumnDecoder
from transforms.decode.protobuf.columns import read_rows
from transforms.decode.protobuf.fields import Messages
from transforms.decode.protobuf.framing import MessageFraming, MessageGroup, WriterMessage
from transforms.decode.protobuf.sizes import growth, message_bytes
from transforms.decode.schema_differences import Differences, requested_columns, wider_paths
from transforms.decode.written_rows import WrittenRows, cut_rows, find_schema_differences
from transforms.reject_reason import RejectReason


@dataclass(frozen=True, slots=True)
class ProtobufDecoder(ColumnDecoder):
    """Decodes columns of messages.

    Attributes:
        framing: how values refer to the type of their message.
        record_limit_bytes: how many bytes the columns of one record may take; a larger record is
            rejected.
    """

    framing: MessageFraming = field(kw_only=True)
    record_limit_bytes: int = field(default=64 << 20, kw_only=True)

    def check_type(self, path: str, data_type: pa.DataType) -> None:
        """Check that a table can have this column type."""
        try:
            to_avro(pa.schema([pa.field("c", data_type)]), "t")
        except InvalidConfig:
            message = f"column {path!r}: Protocol Buffers are not decoded to {data_type}"
            raise InvalidConfig(message) from None

    def decode(self, values: pa.Array | pa.ChunkedArray) -> DecodeResult:
        """See ``ColumnDecoder``.

        Raises:
            RegistryError: the registry does not provide a schema, see ``MessageFraming``.
        """
        rows, start = WrittenRows(self), 0
        for chunk in _chunks(values):
            rows.reject_missing(chunk, start)
            strings = byte_strings(chunk)
            for group in self.groups(chunk):
                if isinstance(group.message, RejectReason):
                    rows.reject_all(group.indices + start, group.message)
                else:
                    self._decode_group(group.message, group, strings, start, rows)
            start += len(chunk)
        return rows.finish()

    def propose_columns(self, values: pa.Array | pa.ChunkedArray) -> Proposal:
        """See ``ColumnDecoder``."""
        return requested_columns(self._differences(values), self.policy, self.unknown_fields)

    def find_wider_paths(self, values: pa.Array | pa.ChunkedArray) -> set[Path]:
        """See ``ColumnDecoder``."""
        return wider_paths(self._differences(values), self.policy)

    def schema_ids(self, values: pa.ChunkedArray) -> pa.Array | None:
        """See ``ColumnDecoder``."""
        return ids_of_valid(values, self.framing.schema_ids(byte_strings(values.cast(pa.binary()))))

    def _differences(self, values: pa.Array | pa.ChunkedArray) -> list[Differences]:
        found: dict[str, Differences] = {}
        for chunk in _chunks(values):
            for group in self.groups(chunk):
                if isinstance(group.message, WriterMessage):
                    fields = group.message.type.arrow
                    found[group.message.name] = find_schema_differences(self, fields)
        return list(found.values())

    def groups(self, chunk: pa.Array) -> Iterator[MessageGroup]:
        """Group the values of a ``binary`` column by their type, without null and empty values."""
        strings = byte_strings(chunk)
        is_valid = chunk.is_valid().to_numpy(zero_copy_only=False)
        return self.framing.groups(strings, np.flatnonzero(is_valid & (strings.lengths > 0)))

    def _decode_group(
        self,
        message: WriterMessage,
        group: MessageGroup,
        strings: ByteStrings,
        start: int,
        rows: WrittenRows,
    ) -> None:
        found = find_schema_differences(self, message.type.arrow)
        fault = rows.find_unknown_fault(found)
        if fault is not None:
            rows.reject_all(group.indices + start, fault.with_prefix(message.name))
            return
        ends = strings.offsets[1:][group.indices]
        for part in self._parts(message, ends - group.starts):
            messages = Messages(strings.data, group.starts[part], ends[part], np.arange(len(part)))
            table, faults = read_rows(
                message.type, self._needed(), messages, self.record_limit_bytes
            )
            indices = group.indices[part] + start
            reasons = {
                int(indices[row]): reason.with_prefix(message.name)
                for row, reason in faults.items()
            }
            rows.reject(reasons)
            if faults:
                is_valid = np.ones(len(part), np.bool_)
                is_valid[list(faults)] = False
                table, indices = table.filter(pa.array(is_valid)), indices[is_valid]
            rows.keep(table, indices, found)

    def _parts(self, message: WriterMessage, lengths: Indices) -> list[Indices]:
        """Divide messages into parts that are read at once."""
        bounds = message_bytes(message.type) + lengths * (1 + growth(message.type))
        everything = np.arange(len(lengths))
        parts = cut_rows(everything, np.minimum(bounds, self.record_limit_bytes))
        return [part for part in parts if len(part)]

    def _needed(self) -> frozenset[str] | None:
        """Return the fields that are read; None if these are all fields."""
        if self.unknown_fields == "rescue":
            return None
        return frozenset((*self.schema.names, *self.policy.aliases))


def _chunks(values: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    return [chunk.cast(pa.binary()) for chunk in chunks]
