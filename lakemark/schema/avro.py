"""Converts a table's schema between Arrow and Avro, as Apache Hudi's Spark writer does.

The record of a row is named ``<table>_record`` in the namespace ``hoodie.<table>``. The full name
of a nested type contains the path of its field. For example, the record of a column ``pos`` is
``hoodie.<table>.<table>_record.pos``, and the fixed of a decimal column ``price`` is
``hoodie.<table>.<table>_record.price.fixed``. A nullable column has the type ``["null", T]`` and
the default null.

Invariants, tested in ``tests/unit/schema``:

- ``to_arrow(to_avro(schema)) == schema`` for every schema that ``canonical`` returns;
- ``to_avro(to_arrow(avro)) == avro`` for every schema of a table written by Apache Hudi's Spark
  writer, key order included.

Source: ``HoodieSparkSchemaConverters``, ``HoodieAvroUtils.sanitizeName`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Iterable, Mapping

import pyarrow as pa

from lakemark.errors import CorruptData, InvalidConfig, Unsupported
from lakemark.model.meta_columns import META_COLUMNS
from lakemark.schema.canonical import MAX_DECIMAL_PRECISION, canonical, not_storable

__all__ = ["canonical", "decimal_bytes", "record_name", "to_arrow", "to_avro", "to_json"]

#: Types without parameters: the Arrow type, the Avro type, and the logical type in Avro.
_SCALARS: tuple[tuple[pa.DataType, str, str | None], ...] = (
    (pa.bool_(), "boolean", None),
    (pa.int32(), "int", None),
    (pa.int64(), "long", None),
    (pa.float32(), "float", None),
    (pa.float64(), "double", None),
    (pa.string(), "string", None),
    (pa.binary(), "bytes", None),
    (pa.date32(), "int", "date"),
    (pa.time32("ms"), "int", "time-millis"),
    (pa.time64("us"), "long", "time-micros"),
    (pa.timestamp("ms", "UTC"), "long", "timestamp-millis"),
    (pa.timestamp("us", "UTC"), "long", "timestamp-micros"),
    (pa.timestamp("ms"), "long", "local-timestamp-millis"),
    (pa.timestamp("us"), "long", "local-timestamp-micros"),
)
_AVRO_OF = {arrow: (kind, logical) for arrow, kind, logical in _SCALARS}
_ARROW_OF = {(kind, logical): arrow for arrow, kind, logical in _SCALARS}
_NAMED = ("record", "fixed", "enum")

_INVALID_FIRST = re.compile(r"^[^A-Za-z_]")
_INVALID_NEXT = re.compile(r"[^A-Za-z0-9_]")


def record_name(table_name: str) -> tuple[str, str]:
    """Return the name and namespace of a table's record.

    Each character of the table name that Avro does not allow is replaced by ``__``.
    """
    if not table_name:
        message = "hoodie.table.name is empty; name the table"
        raise InvalidConfig(message)
    name = _INVALID_NEXT.sub("__", _INVALID_FIRST.sub("__", table_name))
    return f"{name}_record", f"hoodie.{name}"


def to_avro(schema: pa.Schema, table_name: str) -> dict[str, object]:
    """Convert the schema of a table's rows, with or without meta columns, to Avro.

    Raises:
        InvalidConfig: a Hudi table cannot store the type of a column. ``canonical`` converts such
            types where possible.
    """
    name, namespace = record_name(table_name)
    return _avro_record(list(schema), name, namespace, ())


def to_json(avro: Mapping[str, object]) -> str:
    """Print a schema as Apache Hudi does: without spaces, and non-ASCII letters unescaped."""
    return json.dumps(avro, separators=(",", ":"), ensure_ascii=False)


def to_arrow(avro: Mapping[str, object] | str) -> pa.Schema:
    """Convert an Avro schema of rows (parsed, or JSON) to Arrow.

    Raises:
        CorruptData: ``avro`` is not an Avro schema of a record.
        Unsupported: the schema has a type that an Arrow column cannot store: a union of several
            types, a type that contains itself, or a decimal of more than 38 digits.
    """
    parsed = _parse(avro) if isinstance(avro, str) else avro
    try:
        arrow = _arrow_type(parsed, "", {})
    except RecursionError:
        raise _not_avro(parsed, "types with fewer levels of nesting") from None
    if not pa.types.is_struct(arrow):
        raise _not_avro(parsed, "a record")
    return pa.schema(arrow.fields)


# --- Arrow to Avro


def _avro_record(
    fields: Iterable[pa.Field], name: str, namespace: str, path: tuple[str, ...]
) -> dict[str, object]:
    inner = f"{namespace}.{name}"
    return {
        "type": "record",
        "name": name,
        "namespace": namespace,
        "fields": [_avro_field(field, inner, path) for field in fields],
    }


def _avro_field(field: pa.Field, namespace: str, path: tuple[str, ...]) -> dict[str, object]:
    avro: dict[str, object] = {
        "name": field.name,
        "type": _avro_nullable(field, field.name, namespace, (*path, field.name)),
    }
    if not path and field.name in META_COLUMNS:
        avro["doc"] = ""
    if field.nullable:
        avro["default"] = None
    return avro


def _avro_nullable(field: pa.Field, name: str, namespace: str, path: tuple[str, ...]) -> object:
    avro = _avro_type(field.type, name, namespace, path)
    return ["null", avro] if field.nullable else avro


def _avro_type(arrow: pa.DataType, name: str, namespace: str, path: tuple[str, ...]) -> object:
    if arrow in _AVRO_OF:
        kind, logical = _AVRO_OF[arrow]
        return kind if logical is None else {"type": kind, "logicalType": logical}
    if pa.types.is_struct(arrow):
        return _avro_record(arrow.fields, name, namespace, path)
    if pa.types.is_list(arrow):
        items = _avro_nullable(arrow.value_field, name, namespace, path)
        return {"type": "array", "items": items}
    if pa.types.is_map(arrow) and arrow.key_type == pa.string():
        values = _avro_nullable(arrow.item_field, name, namespace, path)
        return {"type": "map", "values": values}
    if pa.types.is_decimal128(arrow) and arrow.scale >= 0:
        return _avro_fixed(f"{namespace}.{name}", decimal_bytes(arrow.precision)) | {
            "logicalType": "decimal",
            "precision": arrow.precision,
            "scale": arrow.scale,
        }
    if pa.types.is_fixed_size_binary(arrow):
        return _avro_fixed(f"{namespace}.{name}", arrow.byte_width)
    raise not_storable(arrow, path)


def _avro_fixed(namespace: str, size_bytes: int) -> dict[str, object]:
    return {"type": "fixed", "name": "fixed", "namespace": namespace, "size": size_bytes}


def decimal_bytes(precision: int) -> int:
    """Return the size of the fixed that can store every signed decimal of ``precision`` digits."""
    largest: int = 10**precision
    return largest.bit_length() // 8 + 1


# --- Avro to Arrow


def _parse(text: str) -> Mapping[str, object]:
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        raise _not_avro(text, "JSON") from None
    if not isinstance(parsed, dict):
        raise _not_avro(text, "a JSON object")
    return parsed


def _arrow_type(avro: object, namespace: str, named: dict[str, pa.DataType | None]) -> pa.DataType:
    """Return the Arrow type of an Avro type.

    Args:
        avro: a type, or the name of a type.
        namespace: namespace of the type that contains it.
        named: the named types that were defined so far, by full name; None for a type whose
            definition is still being converted.
    """
    if isinstance(avro, str):
        return _named_or_primitive(avro, namespace, named)
    if not isinstance(avro, Mapping):
        raise _not_avro(avro, "a type")
    kind, logical = avro.get("type"), avro.get("logicalType")
    if kind in _NAMED:
        return _arrow_named(avro, namespace, named)
    if kind == "array":
        return pa.list_(_arrow_field("element", avro.get("items"), namespace, named))
    if kind == "map":
        return pa.map_(pa.string(), _arrow_field("value", avro.get("values"), namespace, named))
    if kind == "bytes" and logical == "decimal":
        return _arrow_decimal(avro)
    if isinstance(kind, str) and isinstance(logical, str) and (kind, logical) in _ARROW_OF:
        return _ARROW_OF[kind, logical]
    # An unknown logical type is ignored, as the Avro specification says.
    return _arrow_type(kind, namespace, named)


def _named_or_primitive(
    name: str, namespace: str, named: dict[str, pa.DataType | None]
) -> pa.DataType:
    if (name, None) in _ARROW_OF:
        return _ARROW_OF[name, None]
    full_name = name if "." in name or not namespace else f"{namespace}.{name}"
    if full_name not in named:
        raise _not_avro(name, "the name of a type")
    known = named[full_name]
    if known is None:
        message = f"Avro type {full_name} contains itself, which is not supported"
        raise Unsupported(message)
    return known


def _arrow_named(
    avro: Mapping[str, object], namespace: str, named: dict[str, pa.DataType | None]
) -> pa.DataType:
    name, space = avro.get("name"), avro.get("namespace", namespace)
    if not isinstance(name, str) or not isinstance(space, str):
        raise _not_avro(avro, "a name")
    full_name = name if "." in name or not space else f"{space}.{name}"
    named[full_name] = None
    if avro["type"] == "record":
        arrow = pa.struct(_arrow_fields(avro, full_name.rpartition(".")[0], named))
    else:
        arrow = pa.string() if avro["type"] == "enum" else _arrow_fixed(avro)
    named[full_name] = arrow
    return arrow


def _arrow_fields(
    avro: Mapping[str, object], namespace: str, named: dict[str, pa.DataType | None]
) -> list[pa.Field]:
    fields = avro.get("fields")
    if not isinstance(fields, list) or not all(isinstance(field, Mapping) for field in fields):
        raise _not_avro(avro, "a list of fields")
    names = [field.get("name") for field in fields]
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise _not_avro(names, "fields with distinct names")
    return [
        _arrow_field(name, field.get("type"), namespace, named)
        for name, field in zip(names, fields, strict=True)
    ]


def _arrow_field(
    name: str, avro: object, namespace: str, named: dict[str, pa.DataType | None]
) -> pa.Field:
    if not isinstance(avro, list):
        return pa.field(name, _arrow_type(avro, namespace, named), nullable=False)
    branches = [branch for branch in avro if branch != "null"]
    if len(branches) != 1:
        message = (
            f"column {name} is a union of {json.dumps(avro)}, but only unions of null and one type "
            "are supported"
        )
        raise Unsupported(message)
    nullable = len(branches) < len(avro)
    return pa.field(name, _arrow_type(branches[0], namespace, named), nullable=nullable)


def _arrow_fixed(avro: Mapping[str, object]) -> pa.DataType:
    if avro.get("logicalType") == "decimal":
        return _arrow_decimal(avro)
    size_bytes = avro.get("size")
    if not isinstance(size_bytes, int) or not 0 < size_bytes < 2**31:
        raise _not_avro(avro, "a fixed with a size in bytes")
    return pa.binary(size_bytes)


def _arrow_decimal(avro: Mapping[str, object]) -> pa.DataType:
    precision, scale = avro.get("precision"), avro.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int) or precision < 1:
        raise _not_avro(avro, "a decimal with precision and scale")
    if precision > MAX_DECIMAL_PRECISION or not 0 <= scale <= precision:
        message = (
            f"decimal({precision},{scale}) is not supported; the limit is {MAX_DECIMAL_PRECISION} "
            "digits"
        )
        raise Unsupported(message)
    return pa.decimal128(precision, scale)


def _not_avro(actual: object, expected: str) -> CorruptData:
    return CorruptData("Avro schema", None, expected, reprlib.repr(actual))
