"""Returns the columns that a JSON Schema describes.

string             string; with ``format: date`` a date, with ``date-time`` a timestamp; binary with
                   ``contentEncoding: base64`` or Kafka Connect's type ``bytes``
integer            bigint; int with Kafka Connect's type ``int8``, ``int16`` or ``int32``
number             double; float with Kafka Connect's type ``float32``; a decimal with Kafka
                   Connect's name of decimals and a scale
boolean            boolean
object             a struct of its properties
array              an array of its items

A property has no column if it may have values of several types, except null, or integers and
numbers; if it is an object without properties, or one that contains itself; or if the schema says
nothing about its type. ``oneOf`` and ``anyOf`` next to a type or properties add no columns.
``$ref`` may refer to a part of the schema, or to a schema to which the registry's schema refers.
Source: JSON Schema 2020-12 and Draft 7; ``JsonSchemaData`` of Confluent's converter, which writes
``connect.type``, ``connect.parameters`` and names as ``title``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from lakemark.errors import InvalidConfig
from lakemark.model.meta_columns import is_reserved
from lakemark.schema.table_columns import check_columns
from transforms.decode.stored_schema import StoredSchema

_MAX_DEPTH = 32
#: Parts that refer to each other may be read again on each of very many paths.
_MAX_PARTS = 10_000
_DIGITS = 38
_CONNECT = "org.apache.kafka.connect.data."

_SHORT_INTEGERS = ("int8", "int16", "int32")
_FORMATS = {"date": pa.date32(), "date-time": pa.timestamp("us", "UTC")}


class FoundColumns(NamedTuple):
    """What a schema describes.

    Attributes:
        columns: the columns, with those whose names Hudi reserves.
        omitted: the dotted names of the properties that have no column.
    """

    columns: pa.Schema
    omitted: tuple[str, ...] = ()


def find_columns(stored: StoredSchema) -> FoundColumns:
    """Return the columns of an object; none if the schema is not that of an object.

    Args:
        stored: the schema, with the schemas that it refers to.

    Raises:
        InvalidConfig: the schema has too many parts, because they refer to each other.
    """
    try:
        reader = _Reader.of(stored)
        found = reader.find_type(reader.root, reader.root, ())
    except (ValueError, RecursionError):  # the text is not JSON
        found = None
    if found is None or not pa.types.is_struct(found):
        return FoundColumns(pa.schema([]))
    columns = pa.schema([one for one in found if _is_column(one)])
    unnamed = [one.name for one in found if one.name not in columns.names]
    return FoundColumns(columns, tuple(dict.fromkeys([*reader.omitted, *unnamed])))


def _is_column(field: pa.Field) -> bool:
    if is_reserved(field.name):
        return True
    try:
        check_columns(pa.schema([field]))
    except InvalidConfig:
        return False
    return True


@dataclass(slots=True)
class _Reader:
    """Reads the types of one schema.

    Attributes:
        root: the schema.
        others: the schemas that it refers to, by name.
        omitted: the dotted names of the properties without a column that were found.
    """

    root: object
    others: Mapping[str, object]
    omitted: list[str] = field(default_factory=list)
    _path: tuple[str, ...] = ()
    _parts: int = 0

    @classmethod
    def of(cls, stored: StoredSchema) -> _Reader:
        others = {one.name: json.loads(one.stored.text) for one in stored.all_references()}
        return cls(json.loads(stored.text), others)

    def find_type(
        self, schema: object, root: object, around: tuple[int, ...]
    ) -> pa.DataType | None:
        """Return the type of a column; None if no column can have it.

        Args:
            schema: a part of the schema.
            root: the schema within which references of this part are resolved.
            around: the identities of the parts that contain this part.
        """
        if not isinstance(schema, dict) or id(schema) in around or len(around) > _MAX_DEPTH:
            return None
        self._count()
        around = (*around, id(schema))
        if isinstance(schema.get("$ref"), str):
            target, root = self._resolve(schema["$ref"], root)
            return self.find_type(target, root, around)
        kinds = _kinds(schema)
        for word in ("oneOf", "anyOf") if not kinds else ():  # next to a type, they only restrict
            if isinstance(schema.get(word), list):
                return self._find_union(schema[word], root, around)
        if kinds == {"integer", "number"}:
            return pa.float64()
        if len(kinds) != 1:
            return None
        (kind,) = kinds
        if kind == "object":
            return self._find_struct(schema, root, around)
        if kind == "array":
            item = self.find_type(schema.get("items"), root, around)
            return None if item is None else pa.list_(pa.field("element", item))
        return _find_leaf(kind, schema)

    def _find_union(
        self, branches: Sequence[object], root: object, around: tuple[int, ...]
    ) -> pa.DataType | None:
        others = [
            one for one in branches if not (isinstance(one, dict) and _kinds(one) == {"null"})
        ]
        found = [self.find_type(one, root, around) for one in others]
        if len(found) == 2 and set(found) == {pa.int64(), pa.float64()}:
            return pa.float64()
        first = found[0] if found else None
        return first if all(one == first for one in found) else None

    def _find_struct(
        self, schema: Mapping[str, object], root: object, around: tuple[int, ...]
    ) -> pa.DataType | None:
        properties = self._properties(schema, root, around)
        fields = []
        outer = self._path
        for name, (part, within) in properties.items():
            self._path = (*outer, name)
            kind = self.find_type(part, within, around)
            if kind is None:
                self.omitted.append(".".join(self._path))
            else:
                fields.append(pa.field(name, kind))
        self._path = outer
        return pa.struct(fields) if fields else None

    def _properties(
        self, schema: Mapping[str, object], root: object, around: tuple[int, ...]
    ) -> dict[str, tuple[object, object]]:
        """Return the properties of an object and of the parts of ``allOf``, with their roots."""
        self._count()
        found: dict[str, tuple[object, object]] = {}
        parts = schema.get("allOf")
        for part in parts if isinstance(parts, list) else []:
            within = root
            if isinstance(part, dict) and isinstance(part.get("$ref"), str):
                part, within = self._resolve(part["$ref"], root)
            if isinstance(part, dict) and id(part) not in around and len(around) <= _MAX_DEPTH:
                found |= self._properties(part, within, (*around, id(part)))
        own = schema.get("properties")
        if isinstance(own, dict):
            found |= {name: (part, root) for name, part in own.items()}
        return found

    def _count(self) -> None:
        self._parts += 1
        if self._parts > _MAX_PARTS:
            message = (
                f"the JSON Schema has more than {_MAX_PARTS} parts, because they refer to each "
                "other; declare decode.schema"
            )
            raise InvalidConfig(message)

    def _resolve(self, reference: str, root: object) -> tuple[object, object]:
        """Return the part to which a reference refers, and the schema that contains it."""
        name, _, pointer = reference.partition("#")
        target = self.others.get(name) if name else root
        found = target
        for step in pointer.strip("/").split("/") if pointer.strip("/") else []:
            step = step.replace("~1", "/").replace("~0", "~")
            found = found.get(step) if isinstance(found, dict) else None
        return found, target


def _kinds(schema: Mapping[str, object]) -> set[str]:
    """Return the names of the types of a part, without null if there are others."""
    given = schema.get("type")
    listed = given if isinstance(given, list) else [given]
    kinds = {one for one in listed if isinstance(one, str)}
    if not kinds and ("properties" in schema or "allOf" in schema):
        kinds = {"object"}
    values = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
    if not kinds and isinstance(values, list) and all(isinstance(one, str) for one in values):
        kinds = {"string"} if values else set()
    return kinds - {"null"} or kinds


def _find_leaf(kind: str, schema: Mapping[str, object]) -> pa.DataType | None:
    connect = schema.get("connect.type")
    if kind == "integer":
        return pa.int32() if connect in _SHORT_INTEGERS else pa.int64()
    if kind == "boolean":
        return pa.bool_()
    if kind == "number":
        if schema.get("title") == f"{_CONNECT}Decimal":
            return _decimal(schema.get("connect.parameters"))
        return pa.float32() if connect == "float32" else pa.float64()
    if kind != "string":
        return None
    if schema.get("contentEncoding") == "base64" or connect == "bytes":
        return pa.binary()
    return _FORMATS.get(str(schema.get("format")), pa.string())


def _decimal(parameters: object) -> pa.DataType | None:
    given = parameters if isinstance(parameters, dict) else {}
    try:
        scale = int(given.get("scale", ""))
        digits = int(given.get("connect.decimal.precision", _DIGITS))
    except (TypeError, ValueError, OverflowError):  # not a number, or infinite
        return None
    fits = 0 <= scale <= digits and 1 <= digits <= _DIGITS
    return pa.decimal128(digits, scale) if fits else None
