"""Decodes Kafka values that are messages of Protocol Buffers to columns.

All values of one type are read together, field by field (``columns``). Then they are converted to
the types of the table's columns (``transforms.decode.column_conversion``), by the same rules as the
values of Avro records. ``types`` lists what each type becomes.

A value is rejected if it is not a message of its type; the reason names the field. The bytes of
fields that no column needs are not looked at. The policy decides about fields without a column as
for Avro: a field is unknown because its type has it, even if no message contains it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from lakemark.codec.byte_strings import ByteStrings, byte_strings
from transforms.decode.decode_result import DecodeResult, Indices
from transforms.decode.framed_decoder import FramedDecoder, binary_chunks
from transforms.decode.protobuf.columns import read_rows
from transforms.decode.protobuf.fields import Messages
from transforms.decode.protobuf.framing import MessageGroup, WriterMessage
from transforms.decode.protobuf.sizes import growth, message_bytes
from transforms.decode.written_rows import WrittenRows, cut_rows, find_schema_differences
from transforms.reject_reason import RejectReason


@dataclass(frozen=True, slots=True)
class ProtobufDecoder(FramedDecoder[MessageGroup]):
    """Decodes columns of messages."""

    not_decoded: ClassVar[str] = "Protocol Buffers are not decoded"

    def decode(self, values: pa.Array | pa.ChunkedArray) -> DecodeResult:
        """See ``ColumnDecoder``.

        Raises:
            RegistryError: the registry does not provide a schema, see ``Framing``.
        """
        rows, start = WrittenRows(self), 0
        for chunk in binary_chunks(values):
            rows.reject_missing(chunk, start)
            strings = byte_strings(chunk)
            for group in self.groups(chunk):
                if isinstance(group.schema, RejectReason):
                    rows.reject_all(group.indices + start, group.schema)
                else:
                    self._decode_group(group.schema, group, strings, start, rows)
            start += len(chunk)
        return rows.finish()

    def _decode_group(
        self,
        message: WriterMessage,
        group: MessageGroup,
        strings: ByteStrings,
        start: int,
        rows: WrittenRows,
    ) -> None:
        found = find_schema_differences(self, message.fields)
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
