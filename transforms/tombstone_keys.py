"""What the Kafka key of a tombstone says of the row to delete.

raw    the key's UTF-8 text is the value of the only record key field: ``42``
json   the key is an object with the fields of record key and partition: ``{"id": 42, "day": "x"}``
avro   the key is an Avro record of these fields, framed as the values are; where there is one field
       alone, it may also be just its value

A text is cast to the field's type by the rules of ``transforms.decode.json``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.byte_strings import byte_strings
from lakemark.errors import InvalidConfig
from lakemark.keygen.key_generator import KeyGeneratorConfig
from transforms.decode.avro import AvroDecoder
from transforms.decode.avro_decoding import groups_of
from transforms.decode.avro_framing import WriterSchema
from transforms.decode.decoded import Decoded
from transforms.decode.decoder import ColumnDecoder
from transforms.decode.json import JsonDecoder
from transforms.decode.json_presence import find_present
from transforms.decode.json_screening import find_utf8
from transforms.decode.schema_policy import SchemaPolicy

Mask = npt.NDArray[np.bool_]

TombstoneKey = Literal["raw", "json", "avro"]


@dataclass(frozen=True, slots=True)
class TombstoneKeys:
    """Reads Kafka keys into the columns that record key and partition path are made of.

    Attributes:
        kind: how they are written.
        decoder: its schema is those columns alone.
    """

    kind: TombstoneKey
    decoder: ColumnDecoder

    @classmethod
    def of(
        cls,
        kind: TombstoneKey,
        values: ColumnDecoder,
        keys: KeyGeneratorConfig,
        besides: pa.Field | None = None,
    ) -> TombstoneKeys:
        """For a table whose values and keys are made like this.

        Args:
            kind: how Kafka keys are written.
            values: reads the values.
            keys: makes record keys and partition paths.
            besides: a field that JSON keys have besides those of record key and partition.

        Raises:
            InvalidConfig: one text cannot name a row of this table.
        """
        fields = (*keys.record_key_fields, *keys.partition_fields)
        if kind == "raw" and (len(fields) > 1 or fields[0] not in values.schema.names):
            message = (
                "a raw tombstone key is the value of one column, and rows are found by "
                f"{', '.join(fields)}; use json"
            )
            raise InvalidConfig(message)
        columns = {
            name if name in values.schema.names else name.partition(".")[0] for name in fields
        }
        fields_of_key = [field for field in values.schema if field.name in columns]
        if besides is not None and kind == "raw":
            message = f"a raw tombstone key has no field {besides.name!r} to order it by; use json"
            raise InvalidConfig(message)
        if besides is not None and besides.name not in columns:
            fields_of_key.append(besides)
        schema = pa.schema(fields_of_key)
        aliases = {a: c for a, c in values.policy.aliases.items() if c in schema.names}
        return cls(kind, _decoder_of_keys(kind, values, schema, SchemaPolicy(aliases=aliases)))

    def decode(self, keys: pa.Array | pa.ChunkedArray) -> Decoded:
        """Rows of the key columns; never fails on what is in ``keys``."""
        if self.kind != "raw":
            return _say_key(self.decoder.decode(keys))
        keys = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
        is_text = find_utf8(keys) & (pc.binary_length(keys).fill_null(0).to_numpy() > 0)
        texts = pc.if_else(pa.array(is_text), keys, None).cast(pa.string())
        field = self.decoder.schema.field(0)
        if field.type == pa.string():
            return self._texts_as_they_are(texts)
        return _say_key(self.decoder.decode(_as_json(field, texts).cast(pa.binary())))

    def find_absent(self, keys: pa.Array | pa.ChunkedArray, name: str) -> Mask:
        """Which keys have no field for a column, or for a field inside one; null is a field.

        Args:
            keys: that were decoded without a fault.
            name: of the column; dotted for a field of a struct.
        """
        schema = self.decoder.schema
        path = [name] if name in schema.names else name.split(".")
        aliases = self.decoder.policy.aliases
        tops = [path[0], *(alias for alias, column in aliases.items() if column == path[0])]
        keys = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
        keys = keys.cast(pa.binary())
        if isinstance(self.decoder, AvroDecoder):
            return _find_absent_in_avro(self.decoder, keys, [[top, *path[1:]] for top in tops])
        if len(path) == 1:
            absent: Mask = ~np.any([find_present(keys, top) for top in tops], axis=0)
            return absent
        objects = [_JSON.decode(key.decode()) for key in keys.to_pylist()]
        paths = [[top, *path[1:]] for top in tops]
        return np.array([not any(_has(one, path) for path in paths) for one in objects], np.bool_)

    def _texts_as_they_are(self, texts: pa.Array) -> Decoded:
        accepted = np.flatnonzero(texts.is_valid().to_numpy(zero_copy_only=False))
        rejected = np.flatnonzero(texts.is_null().to_numpy(zero_copy_only=False))
        rows = pa.table([texts.drop_null()], schema=self.decoder.schema)
        reasons = ["the Kafka key is null, empty or not UTF-8"] * len(rejected)
        return Decoded(rows, accepted, rejected, reasons)


def _decoder_of_keys(
    kind: TombstoneKey, values: ColumnDecoder, schema: pa.Schema, policy: SchemaPolicy
) -> ColumnDecoder:
    if kind != "avro":
        return JsonDecoder(schema, epoch_unit=values.epoch_unit, policy=policy)
    if not isinstance(values, AvroDecoder):
        message = "tombstone keys are avro and values are not; use raw or json"
        raise InvalidConfig(message)
    framing = values.framing.of_keys(schema.names[0] if len(schema) == 1 else None)
    return replace(values, schema=schema, rescue_column=None, policy=policy, framing=framing)


#: Only names matter, and Python reads only some thousands of digits.
_JSON = json.JSONDecoder(parse_int=str, parse_float=str)


def _has(value: object, path: Sequence[str]) -> bool:
    """Whether a JSON value has a field, or is null on the way to it."""
    for name in path:
        if value is None:
            return True
        if not isinstance(value, dict) or name not in value:
            return False
        value = value[name]
    return True


def _find_absent_in_avro(
    decoder: AvroDecoder, keys: pa.Array, paths: Sequence[Sequence[str]]
) -> Mask:
    """Which keys were written with a schema that has none of the fields."""
    absent = np.ones(len(keys), np.bool_)
    valid = keys.is_valid().to_numpy(zero_copy_only=False).astype(np.bool_)
    for group in groups_of(decoder, byte_strings(keys), valid):
        if isinstance(group.schema, WriterSchema):
            root = group.schema.root.arrow
            absent[group.indices] = not any(_has_type(root, path) for path in paths)
    return absent


def _has_type(written: pa.DataType, path: Sequence[str]) -> bool:
    for name in path:
        if not pa.types.is_struct(written) or written.get_field_index(name) < 0:
            return False
        written = written.field(name).type
    return True


def _say_key(decoded: Decoded) -> Decoded:
    reasons = [f"Kafka key: {reason}" for reason in decoded.reasons]
    return Decoded(decoded.rows, decoded.accepted, decoded.rejected, reasons)


#: Nothing in here can end a JSON string, or add a field to an object.
_HARMLESS = r"^[0-9A-Za-z:+\-. /=]+$"
_INTEGER = r"^-?[0-9]+$"


def _as_json(field: pa.Field, texts: pa.Array) -> pa.Array:
    """Each text as the one field of a JSON object; what cannot be a value becomes null."""
    harmless = pc.if_else(pc.match_substring_regex(texts, _HARMLESS), texts, None)
    quoted = pc.binary_join_element_wise('"', harmless, '"', "")
    if pa.types.is_timestamp(field.type):
        spelled = pc.if_else(pc.match_substring_regex(texts, _INTEGER), harmless, quoted)
    elif pa.types.is_integer(field.type) or pa.types.is_floating(field.type):
        spelled = harmless
    else:
        spelled = harmless if pa.types.is_boolean(field.type) else quoted
    return pc.binary_join_element_wise(f'{{"{field.name}":', spelled, "}", "")
