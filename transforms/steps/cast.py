"""The step that changes the types of columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.errors import InvalidConfig
from transforms.decode.decimal_texts import to_decimals
from transforms.decode.timestamps import find_out_of_range
from transforms.schema_text import TIMESTAMP
from transforms.steps.columns import require_columns
from transforms.steps.single_rows import ColumnFault, reject_failing_rows
from transforms.steps.transform import Transform, Transformed

_Test = Callable[[pa.DataType], bool]

_INTEGERS, _FLOATS = pa.types.is_integer, pa.types.is_floating
_DECIMALS, _TEXTS = pa.types.is_decimal, pa.types.is_string
_DATES, _TIMES = pa.types.is_date, pa.types.is_timestamp
_BOOLEANS, _BYTES = pa.types.is_boolean, pa.types.is_binary

#: From which types to which types columns can be cast. A number is not cast to a time or back,
#: because its unit is not known: ``decode.schema`` declares times.
_CASTS: tuple[tuple[_Test, tuple[_Test, ...]], ...] = (
    (_INTEGERS, (_INTEGERS, _FLOATS, _DECIMALS, _TEXTS)),
    (_FLOATS, (_FLOATS, _INTEGERS, _DECIMALS, _TEXTS)),
    (_DECIMALS, (_DECIMALS, _INTEGERS, _FLOATS, _TEXTS)),
    (_TEXTS, (_INTEGERS, _FLOATS, _DECIMALS, _BOOLEANS, _DATES, _TIMES, _BYTES)),
    (_BOOLEANS, (_TEXTS,)),
    (_DATES, (_TEXTS, _TIMES)),
    (_TIMES, (_TEXTS, _DATES)),
    (_BYTES, (_TEXTS,)),
)

#: A time of day that ends with a zone. Other texts are times in UTC.
_ZONED = r"\d:\d\d.*(Z|[+-]\d\d(:?\d\d)?)$"


#: A text of infinity.
_INFINITY = r"(?i)^[-+]?inf"


@dataclass(frozen=True, slots=True)
class Cast(Transform):
    """Changes the types of columns. A value that does not fit the new type rejects its record.

    Attributes:
        columns: the new type of each column.
    """

    columns: Mapping[str, pa.DataType]

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        """See ``Transform``."""
        require_columns(schema, list(self.columns))
        for name, wanted in self.columns.items():
            given = schema.field(name).type
            if not _is_castable(given, wanted):
                message = (
                    f"column {name!r} is {given}, which cannot be cast to {wanted}; declare it as "
                    "needed in decode.schema, or use another step"
                )
                raise InvalidConfig(message)
        return pa.schema(
            [field.with_type(self.columns.get(field.name, field.type)) for field in schema]
        )

    def apply(self, rows: pa.Table) -> Transformed:
        """See ``Transform``."""
        return reject_failing_rows(self._cast, rows)

    def key_sources(self, column: str, schema: pa.Schema) -> tuple[str, ...]:
        """See ``Transform``."""
        return (column,)

    def _cast(self, rows: pa.Table) -> pa.Table:
        for name, wanted in self.columns.items():
            index = rows.schema.get_field_index(name)
            try:
                values = _cast(rows.column(index), wanted)
            except pa.ArrowInvalid as error:
                message = f"column {name!r} cannot be cast to {wanted}: {error}"
                raise ColumnFault(name, message) from error
            rows = rows.set_column(index, pa.field(name, wanted), values)
        return rows


def _is_castable(given: pa.DataType, wanted: pa.DataType) -> bool:
    return given == wanted or any(
        is_given(given) and any(is_wanted(wanted) for is_wanted in targets)
        for is_given, targets in _CASTS
    )


def _cast(values: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    """Cast values.

    Raises:
        pa.ArrowInvalid: a value does not fit the type.
    """
    given = values.type
    if given == wanted:
        return values
    if _TEXTS(given) and _TIMES(wanted):
        return _check_years(_parse_times(values))
    if _TEXTS(given) and _DECIMALS(wanted):
        return to_decimals(values, wanted)
    if _TEXTS(given) and _INTEGERS(wanted):
        return _parse_integers(values, wanted)
    if _TEXTS(given) and _FLOATS(wanted):
        return _parse_floats(values, wanted)
    if _INTEGERS(given) and _DECIMALS(wanted):
        return values.cast(pa.decimal128(19, 0)).cast(wanted)
    cast = values.cast(wanted)
    if given == pa.float64() and wanted == pa.float32():
        _check_finite(values, cast)
    return _check_years(cast) if _DATES(wanted) else cast


def _parse_integers(texts: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    """Parse decimal digits. pyarrow also reads hexadecimal ones, as the bits of a number."""
    if pc.any(pc.match_substring_regex(texts, "[xX]")).as_py():
        message = "the text is no number of decimal digits"
        raise pa.ArrowInvalid(message)
    return texts.cast(wanted)


def _parse_floats(texts: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    """Parse numbers. pyarrow reads one that is too large as infinity."""
    numbers = texts.cast(wanted)
    is_large = pc.and_not(pc.is_inf(numbers), pc.match_substring_regex(texts, _INFINITY))
    if pc.any(is_large).as_py():
        message = f"the value is out of the range of {wanted}"
        raise pa.ArrowInvalid(message)
    return numbers


def _parse_times(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    is_zoned = pc.match_substring_regex(texts, _ZONED)
    if not pc.any(is_zoned).as_py():
        return texts.cast(pa.timestamp("us")).cast(TIMESTAMP)
    zoned = pc.if_else(is_zoned, texts, pa.scalar(None, pa.string())).cast(TIMESTAMP)
    others = pc.if_else(is_zoned, pa.scalar(None, pa.string()), texts)
    return pc.coalesce(zoned, others.cast(pa.timestamp("us")).cast(TIMESTAMP))


def _check_years(times: pa.ChunkedArray) -> pa.ChunkedArray:
    found = find_out_of_range(times.combine_chunks())
    if found is not None and pc.any(found).as_py():
        message = "the year is not from 1 to 9999"
        raise pa.ArrowInvalid(message)
    return times


def _check_finite(given: pa.ChunkedArray, cast: pa.ChunkedArray) -> None:
    became_infinite = np.isinf(cast.to_numpy()) & ~np.isinf(given.to_numpy())
    if became_infinite.any():
        message = "the value is out of the range of 32 bits"
        raise pa.ArrowInvalid(message)
