"""Compares the types in schemas of Kafka Connect with the types of columns.

The JSON of a decimal has no scale, and that of a timestamp no unit. If the column has others than
the schema of the value, every value would become another one. This holds for fields of structs and
elements of arrays, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from transforms.decode.decoder import EpochUnit
from transforms.decode.envelopes.connect_schemas import fields_of
from transforms.decode.value_encoding import ValueEncoding

_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_DATES = ("org.apache.kafka.connect.data.Date", "io.debezium.time.Date")
#: The types of numbers that are times, and their units. Those without a unit are no timestamps.
_TIMES: Mapping[str, EpochUnit | None] = {
    "org.apache.kafka.connect.data.Timestamp": "ms",
    "io.debezium.time.Timestamp": "ms",
    "io.debezium.time.MicroTimestamp": "us",
    "io.debezium.time.NanoTimestamp": "ns",
    "org.apache.kafka.connect.data.Time": None,
    "io.debezium.time.Time": None,
    "io.debezium.time.MicroTime": None,
    "io.debezium.time.NanoTime": None,
    "io.debezium.time.MicroDuration": None,
    "io.debezium.time.Year": None,
}


def find_difference(
    written: Mapping[str, Any], wanted: pa.DataType, encoding: ValueEncoding, epoch_unit: EpochUnit
) -> str | None:
    """Return why the values of a field would be read as other values; None if they are not.

    Args:
        written: the schema of the field; empty if it is not known.
        wanted: the type of the column.
        encoding: how the values are encoded.
        epoch_unit: the unit of timestamps that are numbers.
    """
    if pa.types.is_struct(wanted):
        fields = fields_of(written, ())
        for one in wanted:
            text = find_difference(fields.get(one.name, {}), one.type, encoding, epoch_unit)
            if text is not None:
                return f"field {one.name!r}: {text}"
        return None
    if pa.types.is_list(wanted):
        items = written.get("items")
        items = items if isinstance(items, Mapping) else {}
        return find_difference(items, wanted.value_type, encoding, epoch_unit)
    if pa.types.is_decimal(wanted) and encoding.base64_decimals:
        return _find_other_decimal(written, wanted)
    if pa.types.is_date32(wanted) and (name := str(written.get("name"))) in _TIMES:
        return f"the schema of the value says {name}, which is not a date"
    if pa.types.is_timestamp(wanted):
        return _find_other_time(written, epoch_unit)
    return None


def _find_other_decimal(written: Mapping[str, Any], wanted: pa.DataType) -> str | None:
    if written.get("type") in ("string", "float", "double"):
        return (
            f"the schema of the value says {written['type']}, and not the bytes of a decimal; set "
            "decode.decimal_handling"
        )
    if written.get("name") != _DECIMAL:
        return None
    parameters = written.get("parameters")
    scale = str(parameters.get("scale")) if isinstance(parameters, Mapping) else "None"
    if scale == str(wanted.scale):
        return None
    return (
        f"the schema of the value says a decimal with the scale {scale}, but the column is "
        f"decimal({wanted.precision},{wanted.scale}); declare the scale {scale}"
    )


def _find_other_time(written: Mapping[str, Any], epoch_unit: EpochUnit) -> str | None:
    name = str(written.get("name"))
    if name in _DATES:
        return f"the schema of the value says {name}; declare the column as date"
    if name not in _TIMES or _TIMES[name] == epoch_unit:
        return None
    if _TIMES[name] is None:
        return f"the schema of the value says {name}, which is not a timestamp; declare bigint"
    return (
        f"the schema of the value says {name}, so the unit is {_TIMES[name]}, but "
        f"decode.timestamp_unit is {epoch_unit}; change this setting, or let the connector send "
        "all timestamps in one unit (time.precision.mode)"
    )
