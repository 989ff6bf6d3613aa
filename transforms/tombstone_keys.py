"""Decodes the Kafka keys of tombstones, which identify the row to delete.

raw    the UTF-8 text of the key is the value of the only record key field: ``42``
json   the key is an object with the fields of record key and partition: ``{"id": 42, "day": "x"}``;
       if the values are JSON with a schema's id in front, keys may also have one
avro   the key is an Avro record with these fields, in the framing of the values; if there is only
       one field, the key may also be the value of this field alone
protobuf
       the key is a message of Protocol Buffers with these fields, with its schema's id in front

Texts are converted to the type of the field by the rules of ``transforms.decode.json``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.byte_strings import byte_strings
from lakemark.errors import InvalidConfig
from transforms.decode.avro import AvroDecoder
from transforms.decode.confluent_header import header_ids, without_headers
from transforms.decode.decode_result import DecodeResult
from transforms.decode.decoder import ColumnDecoder
from transforms.decode.envelopes.connect_keys import without_schema
from transforms.decode.envelopes.event_decoder import EventDecoder
from transforms.decode.json import JsonDecoder
from transforms.decode.json_presence import find_present
from transforms.decode.json_scanner import parse
from transforms.decode.json_schema import JsonSchemaDecoder
from transforms.decode.json_screening import find_utf8
from transforms.decode.protobuf.decoder import ProtobufDecoder
from transforms.decode.schema_policy import SchemaPolicy
from transforms.reject_reason import RejectCode, RejectReason

Mask = npt.NDArray[np.bool_]

TombstoneKey = Literal["raw", "json", "avro", "protobuf"]


@dataclass(frozen=True, slots=True)
class TombstoneKeyDecoder:
    """Decodes Kafka keys to the columns that record key and partition path are generated from.

    Attributes:
        kind: the encoding of the keys.
        decoder: a decoder that has only these columns.
        may_have_schema: whether keys may be JSON of Kafka Connect, which has a schema.
        may_have_header: whether keys may be JSON after the id of their schema in a registry.
    """

    kind: TombstoneKey
    decoder: ColumnDecoder
    may_have_schema: bool = False
    may_have_header: bool = False

    @classmethod
    def for_table(
        cls,
        kind: TombstoneKey,
        values: ColumnDecoder,
        fields: Sequence[str],
        ordering_field: pa.Field | None = None,
    ) -> TombstoneKeyDecoder:
        """Return the decoder of tombstone keys for a table.

        Args:
            kind: the encoding of the Kafka keys.
            values: the decoder of the values.
            fields: the fields of the record key, and of the partition if it is needed to find a
                row, with dotted names for fields of structs. If there are transforms, these are the
                fields before the transforms.
            ordering_field: the field of a JSON key that contains the ordering value; None if the
                key does not contain this value.

        Raises:
            InvalidConfig: keys of this kind cannot identify a row of this table.
        """
        if kind == "raw" and (len(fields) != 1 or fields[0] not in values.schema.names):
            message = (
                "a raw tombstone key is the value of one column, but rows are identified by "
                f"{', '.join(fields)}; use json"
            )
            raise InvalidConfig(message)
        columns = {
            name if name in values.schema.names else name.partition(".")[0] for name in fields
        }
        fields_of_key = [field for field in values.schema if field.name in columns]
        if ordering_field is not None and kind == "raw":
            message = (
                f"a raw tombstone key has no field {ordering_field.name!r} to order it by; use json"
            )
            raise InvalidConfig(message)
        if ordering_field is not None and ordering_field.name not in columns:
            fields_of_key.append(ordering_field)
        schema = pa.schema(fields_of_key)
        aliases = {a: c for a, c in values.policy.aliases.items() if c in schema.names}
        decoder = _key_decoder(kind, values, schema, SchemaPolicy(aliases=aliases))
        may_have_schema = kind in ("raw", "json") and isinstance(values, EventDecoder)
        may_have_header = kind == "json" and isinstance(values, JsonSchemaDecoder)
        return cls(kind, decoder, may_have_schema, may_have_header)

    def decode(self, keys: pa.Array | pa.ChunkedArray) -> DecodeResult:
        """Decode keys to rows of the key columns. Invalid keys are rejected and cause no errors."""
        keys = self._without_schema(keys)
        if self.kind != "raw":
            return _prefix_reasons(self.decoder.decode(keys))
        is_text = find_utf8(keys) & (pc.binary_length(keys).fill_null(0).to_numpy() > 0)
        texts = pc.if_else(pa.array(is_text), keys, None).cast(pa.string())
        field = self.decoder.schema.field(0)
        if field.type == pa.string():
            return self._decode_strings(texts)
        return _prefix_reasons(self.decoder.decode(_as_json(field, texts).cast(pa.binary())))

    def find_absent(self, keys: pa.Array | pa.ChunkedArray, name: str) -> Mask:
        """Return which keys lack a field. A field that is null is not absent.

        Args:
            keys: keys that were decoded without errors.
            name: the name of the column; a dotted name for a field of a struct.
        """
        schema = self.decoder.schema
        path = [name] if name in schema.names else name.split(".")
        aliases = self.decoder.policy.aliases
        top_names = [path[0], *(alias for alias, column in aliases.items() if column == path[0])]
        keys = self._without_schema(keys)
        if isinstance(self.decoder, AvroDecoder | ProtobufDecoder):
            paths = [[top, *path[1:]] for top in top_names]
            return _find_absent_in_schemas(self.decoder, keys, paths)
        if len(path) == 1:
            absent: Mask = ~np.any([find_present(keys, top) for top in top_names], axis=0)
            return absent
        objects = [parse(key.decode()) for key in keys.to_pylist()]
        paths = [[top, *path[1:]] for top in top_names]
        return np.array(
            [not any(_has_field(one, path) for path in paths) for one in objects], np.bool_
        )

    def _without_schema(self, keys: pa.Array | pa.ChunkedArray) -> pa.Array:
        keys = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
        keys = keys.cast(pa.binary())
        if self.may_have_header:  # a JSON text does not begin with the byte 0
            is_framed = pa.array(header_ids(byte_strings(keys)) >= 0)
            return pc.if_else(is_framed, without_headers(keys), keys)
        if not self.may_have_schema:
            return keys
        return without_schema(keys, as_text=self.kind == "raw")

    def _decode_strings(self, texts: pa.Array) -> DecodeResult:
        accepted = np.flatnonzero(texts.is_valid().to_numpy(zero_copy_only=False))
        rejected = np.flatnonzero(texts.is_null().to_numpy(zero_copy_only=False))
        rows = pa.table([texts.drop_null()], schema=self.decoder.schema)
        text = "the Kafka key is null, empty or not UTF-8"
        reasons = [RejectReason(RejectCode.INVALID_MESSAGE, text)] * len(rejected)
        return DecodeResult(rows=rows, accepted=accepted, rejected=rejected, reasons=reasons)


def _key_decoder(
    kind: TombstoneKey, values: ColumnDecoder, schema: pa.Schema, policy: SchemaPolicy
) -> ColumnDecoder:
    if kind == "protobuf":
        if not isinstance(values, ProtobufDecoder):
            message = "tombstone keys are protobuf, but values are not; use raw or json"
            raise InvalidConfig(message)
        return replace(values, schema=schema, rescue_column=None, policy=policy)
    if kind != "avro":
        return JsonDecoder(schema, epoch_unit=values.epoch_unit, policy=policy)
    values = values.events if isinstance(values, EventDecoder) else values
    if not isinstance(values, AvroDecoder):
        message = "tombstone keys are avro, but values are not; use raw or json"
        raise InvalidConfig(message)
    framing = values.framing.for_keys(schema.names[0] if len(schema) == 1 else None)
    return replace(values, schema=schema, rescue_column=None, policy=policy, framing=framing)


def _has_field(value: object, path: Sequence[str]) -> bool:
    """Return whether a JSON value has a field; this is also true if a parent of it is null."""
    for name in path:
        if value is None:
            return True
        if not isinstance(value, dict) or name not in value:
            return False
        value = value[name]
    return True


def _find_absent_in_schemas(
    decoder: AvroDecoder | ProtobufDecoder, keys: pa.Array, paths: Sequence[Sequence[str]]
) -> Mask:
    """Return which keys were written with a schema that has none of the fields."""
    absent = np.ones(len(keys), np.bool_)
    for group in decoder.groups(keys):
        if not isinstance(group.schema, RejectReason):
            written = group.schema.fields
            absent[group.indices] = not any(_schema_has_field(written, path) for path in paths)
    return absent


def _schema_has_field(written: pa.DataType, path: Sequence[str]) -> bool:
    for name in path:
        if not pa.types.is_struct(written) or written.get_field_index(name) < 0:
            return False
        written = written.field(name).type
    return True


def _prefix_reasons(decoded: DecodeResult) -> DecodeResult:
    reasons = [reason.with_prefix("Kafka key") for reason in decoded.reasons]
    return DecodeResult(
        rows=decoded.rows, accepted=decoded.accepted, rejected=decoded.rejected, reasons=reasons
    )


#: A text that has only these characters cannot end a JSON string or add a field to an object.
_SAFE_TEXT = r"^[0-9A-Za-z:+\-. /=]+$"
_INTEGER = r"^-?[0-9]+$"


def _as_json(field: pa.Field, texts: pa.Array) -> pa.Array:
    """Return a JSON object with one field for each text; null if the text cannot be its value."""
    safe = pc.if_else(pc.match_substring_regex(texts, _SAFE_TEXT), texts, None)
    quoted = pc.binary_join_element_wise('"', safe, '"', "")
    if pa.types.is_timestamp(field.type):
        json_values = pc.if_else(pc.match_substring_regex(texts, _INTEGER), safe, quoted)
    elif pa.types.is_integer(field.type) or pa.types.is_floating(field.type):
        json_values = safe
    else:
        json_values = safe if pa.types.is_boolean(field.type) else quoted
    return pc.binary_join_element_wise(f'{{"{field.name}":', json_values, "}", "")
