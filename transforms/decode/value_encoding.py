"""How events and lines of CSV encode the values of rows.

With the default settings of Kafka Connect and Debezium, a decimal is the Base64 of its unscaled
value (two's complement, big-endian), and a date is the number of days since 1970. Canal and CSV
have texts instead of numbers; the bytes of a binary value are the code points of its text. Source:
"Data type mappings" in the documentation of Debezium's connectors; ``Decimal`` and ``Date`` of
Kafka Connect; ``MQMessageUtils`` of Canal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.avro_binary import decimals_from
from lakemark.codec.byte_strings import byte_strings
from transforms.decode.column_conversion import ColumnConverter, cast_if_possible
from transforms.decode.decimal_texts import to_decimals
from transforms.decode.decoder import EpochUnit
from transforms.reject_reason import RejectReason

#: The longest unscaled value that is read. One of 38 digits has at most 16 bytes.
_LONGEST_DECIMAL = 64


@dataclass(frozen=True, slots=True)
class NotNeeded:
    """Values that become null if they do not fit their column, instead of rejecting their row.

    Attributes:
        rows: the rows with such values.
        needed: the columns that have no such values.
    """

    rows: npt.NDArray[np.bool_]
    needed: frozenset[str]


@dataclass(frozen=True, slots=True)
class ValueEncoding:
    """How values of a row are encoded.

    Attributes:
        base64_decimals: whether decimals are the Base64 of their unscaled value. If not, they are
            numbers or texts.
        epoch_days: whether dates are numbers of days since 1970. If not, they are texts.
        texts: whether all values that are not nested are texts.
    """

    base64_decimals: bool = False
    epoch_days: bool = False
    texts: bool = False

    def encoded(self, data_type: pa.DataType) -> pa.DataType:
        """Return the type in which values of a column's type are decoded."""
        if self.texts and not pa.types.is_nested(data_type):
            return pa.string()
        if self.base64_decimals and pa.types.is_decimal(data_type):
            return pa.binary()
        if self.epoch_days and pa.types.is_date32(data_type):
            return pa.int32()
        if pa.types.is_struct(data_type):
            return pa.struct([self.encoded_field(field) for field in data_type])
        if pa.types.is_list(data_type):
            return pa.list_(self.encoded_field(data_type.value_field))
        return data_type

    def encoded_field(self, field: pa.Field) -> pa.Field:
        """Return a field with the type in which its values are decoded."""
        return field.with_type(self.encoded(field.type))

    def has_fixed_type(self, data_type: pa.DataType) -> bool:
        """Return whether a number that does not fit the decoded type does not widen the column."""
        return not self.encoded(data_type).equals(data_type)

    def convert(
        self,
        rows: pa.Table,
        schema: pa.Schema,
        epoch_unit: EpochUnit,
        not_needed: NotNeeded | None = None,
    ) -> tuple[pa.Table, Mapping[int, RejectReason]]:
        """Convert decoded rows to the columns of a schema.

        Args:
            rows: the decoded rows.
            schema: the columns.
            epoch_unit: the unit of timestamps that are numbers.
            not_needed: values that become null if they do not fit; None if there are none.

        Returns:
            The columns, in which a value is null if it does not fit; and the reason to reject a
            row, by its number.
        """
        if rows.schema.types == schema.types:
            return rows, {}
        converter = _EncodedConverter(epoch_unit)
        converted = converter.convert(rows, schema)
        reasons: dict[int, RejectReason] = {}
        for mismatch in converter.mismatches:
            faulty = mismatch.rows
            if not_needed is not None and mismatch.column not in not_needed.needed:
                faulty = faulty & ~not_needed.rows
            for row in np.flatnonzero(faulty).tolist():
                reasons.setdefault(row, mismatch.reason)
        return converted, reasons


#: Values as ``transforms.decode.json`` and ``transforms.decode.avro`` describe them.
PLAIN = ValueEncoding()


class _EncodedConverter(ColumnConverter):
    """Converts rows in their decoded types to the types of the columns."""

    def convert_leaf(self, values: pa.Array, wanted: pa.DataType) -> pa.Array:
        """See ``ColumnConverter``."""
        if pa.types.is_decimal(wanted) and pa.types.is_binary(values.type):
            return cast_if_possible(values, lambda part: _to_decimals(part, wanted), wanted)
        if pa.types.is_date32(wanted) and values.type == pa.int32():
            values = values.view(wanted)
        if pa.types.is_string(values.type) and not pa.types.is_string(wanted):
            values = _parse(values, wanted)
        return super().convert_leaf(values, wanted)


#: An integer, without a plus sign, blanks, and other characters that a cast accepts.
_INTEGER = r"^-?[0-9]+$"
#: A time with a zone, after which only digits of a fraction may come.
_ZONED = r"[T ]\d\d.*(Z|[+-]\d\d(:?\d\d)?)$"
_INFINITY = r"(?i)^\s*[-+]?inf"
#: Texts of a boolean. MySQL has numbers instead.
_BOOLEANS = pa.array(["0", "1", "false", "true"])
_UTC, _LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")


def _parse(texts: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Parse texts; those that are no values of the type become null."""
    if pa.types.is_binary(wanted):
        return cast_if_possible(texts, _to_bytes, wanted)
    if pa.types.is_boolean(wanted):
        position = pc.index_in(texts, _BOOLEANS)
        return pc.equal(pc.bit_wise_and(position, 1), 1)
    if pa.types.is_float32(wanted):
        return _to_float(_parse(texts, pa.float64()))
    if pa.types.is_integer(wanted):
        texts = pc.if_else(pc.match_substring_regex(texts, _INTEGER), texts, None)
    if wanted == _UTC:
        return _to_times(texts)
    if pa.types.is_float64(wanted):
        return _to_doubles(texts)
    if pa.types.is_decimal(wanted):
        return cast_if_possible(texts, lambda part: to_decimals(part, wanted), wanted)
    return cast_if_possible(texts, lambda part: part.cast(wanted), wanted)


def _to_times(texts: pa.Array) -> pa.Array:
    """Parse times. A time without a zone is UTC; digits below the microsecond are cut off."""
    texts = pc.replace_substring_regex(texts, r"(\.\d{6})\d+", r"\1")
    is_zoned = pc.match_substring_regex(texts, _ZONED)
    zoned = pc.if_else(is_zoned, texts, None)
    local = pc.if_else(is_zoned, None, texts)
    at_zone = cast_if_possible(zoned, lambda part: part.cast(_UTC), _UTC)
    at_utc = cast_if_possible(local, lambda part: part.cast(_LOCAL), _LOCAL)
    return pc.coalesce(at_zone, pc.assume_timezone(at_utc, "UTC"))


def _to_doubles(texts: pa.Array) -> pa.Array:
    """Parse numbers; one that would become infinite is null."""
    doubles = cast_if_possible(texts, lambda part: part.cast(pa.float64()), pa.float64())
    is_large = pc.and_(pc.is_inf(doubles), pc.invert(pc.match_substring_regex(texts, _INFINITY)))
    return pc.if_else(is_large, pa.scalar(None, pa.float64()), doubles)


def _to_float(doubles: pa.Array) -> pa.Array:
    """Return the nearest floats; a number that would become infinite is null."""
    floats = doubles.cast(pa.float32(), safe=False)
    is_large = pc.and_(pc.is_inf(floats), pc.is_finite(doubles))
    return pc.if_else(is_large, pa.scalar(None, pa.float32()), floats)


def _to_bytes(texts: pa.Array) -> pa.Array:
    """Return the bytes whose code points the characters are.

    Raises:
        pyarrow.ArrowInvalid: a character is no byte.
    """
    try:
        found = [None if one is None else one.encode("latin-1") for one in texts.to_pylist()]
    except UnicodeEncodeError as error:
        raise pa.ArrowInvalid(str(error)) from None
    return pa.array(found, pa.binary())


def _to_decimals(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return the decimals with these unscaled values.

    Raises:
        pyarrow.ArrowInvalid: a value is empty, or has more digits than the type.
    """
    is_valid = values.is_valid()
    decimals = decimals_from(_cells(values.fill_null(b"\0")), wanted)
    return decimals if not values.null_count else pc.if_else(is_valid, decimals, None)


def _cells(values: pa.Array) -> npt.NDArray[np.uint8]:
    """Return the values as rows of equal width, which repeat the sign of the value in front."""
    strings = byte_strings(values)
    width = int(strings.lengths.max(initial=1))
    if width > _LONGEST_DECIMAL or not strings.lengths.all():
        message = f"an unscaled value has no byte, or more than {_LONGEST_DECIMAL}"
        raise pa.ArrowInvalid(message)
    starts, ends = strings.offsets[:-1], strings.offsets[1:]
    positions = ends[:, None] - width + np.arange(width)
    is_own = positions >= starts[:, None]
    sign = (strings.data[starts] >> 7) * np.uint8(0xFF)
    cells: npt.NDArray[np.uint8] = np.where(
        is_own, strings.data[np.maximum(positions, 0)], sign[:, None]
    )
    return cells
