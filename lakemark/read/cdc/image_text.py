"""Prints the images of records as JSON, in the two dialects of Apache Hudi 1.2.0.

If a reader infers a change from data files, Jackson prints Spark's row
(``InternalRowToJsonStringConverter``). In this dialect nulls are omitted, bytes are in Base64, and
a decimal only shows whether it is zero. If the writer logged the change in a ``.cdc`` file, Avro
prints the record (``GenericData.toString``). In this dialect the record is complete, with the
numbers and bytes that Avro stores.

Times are numbers in both dialects. Entries of maps, and fields of nested records with more than
four fields, are printed in stored order. In Java they are in the order of their hashes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.errors import Unsupported
from lakemark.read.cdc.java_text import base64_text, number_text, per_byte_text, quoted

_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
}


@dataclass(frozen=True, slots=True)
class Dialect:
    """The JSON format of one Java library.

    Attributes:
        comma: separates fields, elements and entries.
        colon: separates a name and its value.
        special: characters that must be escaped in a string, as a character class of RE2.
        prints_nulls: whether null fields of a record, and null entries of a map, are printed.
        bytes_text: returns the JSON of a column of bytes.
        fixed_text: returns the JSON of a column of fixed-length bytes.
    """

    comma: str
    colon: str
    special: str
    prints_nulls: bool
    bytes_text: Callable[[pa.Array], pa.Array]
    fixed_text: Callable[[pa.Array], pa.Array]

    def text(self, values: pa.Array) -> pa.Array:
        """Return the JSON of each value of a column; null stays null.

        Raises:
            Unsupported: the column has a type that Hudi tables do not have.
        """
        if len(values) == 0:
            return pa.array([], pa.string())
        for is_of_kind, print_values in _PRINTERS:
            if is_of_kind(values.type):
                return pc.if_else(values.is_valid(), print_values(self, values), None)
        message = f"a column of {values.type} cannot be printed as the image of a change"
        raise Unsupported(message)

    def string_text(self, values: pa.Array) -> pa.Array:
        """Return the JSON of strings."""
        return quoted(values, self.special, _ESCAPES)

    def named(self, names: pa.Array | str, texts: pa.Array) -> pa.Array:
        """Return a comma, the name and its value; empty if the value is a null and is omitted."""
        if self.prints_nulls:
            texts = pc.fill_null(texts, "null")
        return pc.fill_null(
            pc.binary_join_element_wise(self.comma, names, self.colon, texts, ""), ""
        )

    def in_braces(self, members: pa.Array) -> pa.Array:
        """Return the JSON object of some members; each member begins with a comma."""
        without_comma = pc.utf8_slice_codeunits(members, len(self.comma))
        return pc.binary_join_element_wise("{", without_comma, "}", "")


def _struct_text(dialect: Dialect, values: pa.StructArray) -> pa.Array:
    members: list[pa.Array | str] = [pa.array([""] * len(values))]
    for position, field in enumerate(values.type):
        name = dialect.string_text(pa.array([field.name]))[0].as_py()
        members.append(dialect.named(name, dialect.text(values.field(position))))
    return dialect.in_braces(pc.binary_join_element_wise(*members, ""))


def _list_text(dialect: Dialect, values: pa.ListArray) -> pa.Array:
    elements = pc.fill_null(dialect.text(_owned(values, values.values)), "null")
    return pc.binary_join_element_wise("[", _joined(values, elements, dialect.comma), "]", "")


def _map_text(dialect: Dialect, values: pa.MapArray) -> pa.Array:
    keys = dialect.string_text(_owned(values, values.keys))
    entries = dialect.named(keys, dialect.text(_owned(values, values.items)))
    return dialect.in_braces(_joined(values, entries, ""))


def _owned(lists: pa.Array, children: pa.Array) -> pa.Array:
    """Return the child values that belong to a slice of lists, or of maps."""
    first, end = lists.offsets[0].as_py(), lists.offsets[-1].as_py()
    return children.slice(first, end - first)


def _joined(lists: pa.Array, texts: pa.Array, separator: str) -> pa.Array:
    """Join the texts of the child values of each list."""
    offsets = pc.subtract(lists.offsets, lists.offsets[0])
    return pc.binary_join(pa.ListArray.from_arrays(offsets, texts), separator)


def _boolean_text(dialect: Dialect, values: pa.Array) -> pa.Array:
    return pc.if_else(values, "true", "false")


def _integer_text(dialect: Dialect, values: pa.Array) -> pa.Array:
    return values.cast(pa.string())


def _number_text(dialect: Dialect, values: pa.Array) -> pa.Array:
    return number_text(values)


def _short_time_text(dialect: Dialect, values: pa.Array) -> pa.Array:
    return values.cast(pa.int32()).cast(pa.string())


def _long_time_text(dialect: Dialect, values: pa.Array) -> pa.Array:
    return values.cast(pa.int64()).cast(pa.string())


def _timestamp_text(dialect: Dialect, values: pa.Array) -> pa.Array:
    """Return the microseconds since 1970, because Spark has no other timestamps."""
    micros = values.cast(pa.timestamp("us", values.type.tz))
    return micros.cast(pa.int64()).cast(pa.string())


def _decimal_text(dialect: Dialect, values: pa.Array) -> pa.Array:
    """Return the only property that Jackson finds in Spark's ``Decimal``: ``isZero``."""
    is_zero = pc.equal(values, pa.scalar(0, values.type))
    return pc.if_else(is_zero, '{"zero":true}', '{"zero":false}')


def _bytes_text(dialect: Dialect, values: pa.Array) -> pa.Array:
    return dialect.bytes_text(values)


def _fixed_text(dialect: Dialect, values: pa.Array) -> pa.Array:
    return dialect.fixed_text(values)


_Printer: TypeAlias = Callable[[Dialect, pa.Array], pa.Array]

_PRINTERS: tuple[tuple[Callable[[pa.DataType], bool], _Printer], ...] = (
    (pa.types.is_string, Dialect.string_text),
    (pa.types.is_boolean, _boolean_text),
    (pa.types.is_integer, _integer_text),
    (pa.types.is_floating, _number_text),
    (pa.types.is_decimal, _decimal_text),
    (pa.types.is_date32, _short_time_text),
    (pa.types.is_time32, _short_time_text),
    (pa.types.is_time64, _long_time_text),
    (pa.types.is_timestamp, _timestamp_text),
    (pa.types.is_binary, _bytes_text),
    (pa.types.is_fixed_size_binary, _fixed_text),
    (pa.types.is_struct, _struct_text),
    (pa.types.is_map, _map_text),
    (pa.types.is_list, _list_text),
)

_LATIN_CHARACTERS = pa.array([chr(byte) for byte in range(256)])
_SIGNED_BYTES = pa.array([str((byte + 128) % 256 - 128) for byte in range(256)])
_AVRO_SPECIAL = r'["\\\x00-\x1f\x7f-\x{9f}\x{2000}-\x{20ff}]'
_LATIN_WORDS = pc.utf8_slice_codeunits(quoted(_LATIN_CHARACTERS, _AVRO_SPECIAL, _ESCAPES), 1, -1)


def _latin_text(values: pa.Array) -> pa.Array:
    """Return bytes as a string in which each byte is the character with the same code."""
    return pc.binary_join_element_wise('"', per_byte_text(values, _LATIN_WORDS, ""), '"', "")


def _byte_list_text(values: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise("[", per_byte_text(values, _SIGNED_BYTES, ", "), "]", "")


JACKSON = Dialect(
    comma=",",
    colon=":",
    special=r'["\\\x00-\x1f]',
    prints_nulls=False,
    bytes_text=base64_text,
    fixed_text=base64_text,
)
AVRO = Dialect(
    comma=", ",
    colon=": ",
    special=_AVRO_SPECIAL,
    prints_nulls=True,
    bytes_text=_latin_text,
    fixed_text=_byte_list_text,
)
