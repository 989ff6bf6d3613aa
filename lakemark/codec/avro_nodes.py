"""Converts an Avro schema to a tree of nodes, from which rows are read and written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
from fastavro.schema import SchemaParseException, UnknownType, expand_schema

from lakemark.codec.avro_columnar import with_one_type
from lakemark.errors import CorruptData
from lakemark.schema.avro import to_arrow

_NUMBERS = {
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
}


@dataclass(frozen=True, slots=True)
class Node:
    """One type in the tree, with the Arrow type of its values.

    Attributes:
        kind: type in Avro (``long``, ``record``, ``array``, ...), without the logical type.
        arrow: Arrow type of the values.
        children: the fields of a record, the items of an array, or the keys and values of a map.
        branch: position of this type in its union; None if it is not in a union.
        null_branch: position of null in that union; None if the union has no null.
        symbols: symbols of an enum.
        size_bytes: size of a fixed.
        narrower: the other number types of the union, each with its own branch. Their values are
            read as ``arrow``.
    """

    kind: str
    arrow: pa.DataType
    children: tuple[Node, ...] = ()
    branch: int | None = None
    null_branch: int | None = None
    symbols: tuple[str, ...] = ()
    size_bytes: int = 0
    narrower: tuple[Node, ...] = ()

    def of_branch(self, branch: int) -> Node | None:
        """Return the type of a branch of the union; None for null, and for a missing branch."""
        return next((node for node in (self, *self.narrower) if node.branch == branch), None)


def root_of(avro_schema: Mapping[str, object]) -> Node:
    """Return the node of a schema's record; its Arrow type is a struct of the columns of the rows.

    Raises:
        CorruptData: the schema is not a valid Avro schema of a record.
        Unsupported: Arrow cannot store a type, see ``lakemark.schema.avro.to_arrow``.
    """
    arrow = pa.struct(list(to_arrow(_of_columns(avro_schema))))
    try:
        expanded = expand_schema(dict(avro_schema))
    except (SchemaParseException, UnknownType, KeyError, TypeError, ValueError) as error:
        name = "Avro schema"
        raise CorruptData(name, None, "valid types", f"{type(error).__name__}: {error}") from error
    return _node(expanded, arrow)


def entry_of(node: Node) -> Node:
    """Return the node of a map's entries: a record of key and value."""
    key = pa.field("key", node.arrow.key_type, nullable=False)
    value = pa.field("value", node.arrow.item_type, nullable=node.arrow.item_field.nullable)
    return Node("record", pa.struct([key, value]), node.children)


def _node(avro: object, arrow: pa.DataType) -> Node:
    if isinstance(avro, list):
        return _union(avro, arrow)
    if isinstance(avro, str):
        return Node(avro, arrow)
    assert isinstance(avro, dict), avro
    kind = avro["type"]
    if kind == "record":
        fields = zip(avro["fields"], arrow.fields, strict=True)
        return Node(kind, arrow, tuple(_node(field["type"], own.type) for field, own in fields))
    if kind == "array":
        return Node(kind, arrow, (_node(avro["items"], arrow.value_type),))
    if kind == "map":
        key = Node("string", arrow.key_type)
        return Node(kind, arrow, (key, _node(avro["values"], arrow.item_type)))
    if kind == "enum":
        return Node(kind, arrow, symbols=tuple(avro["symbols"]))
    if kind == "fixed":
        return Node(kind, arrow, size_bytes=avro["size"])
    return Node(kind, arrow) if isinstance(kind, str) else _node(kind, arrow)


def _of_columns(avro_schema: Mapping[str, object]) -> Mapping[str, object]:
    try:
        columnar = with_one_type(avro_schema)
    except RecursionError:
        columnar = avro_schema  # ``to_arrow`` fails too, and raises the error for it
    assert isinstance(columnar, Mapping), columnar
    return columnar


def _union(branches: list[object], arrow: pa.DataType) -> Node:
    """Return the node of a union that ``to_arrow`` has accepted.

    Apart from null, the union has one type, or number types of which one represents the others.
    """
    null_branch = branches.index("null") if "null" in branches else None
    nodes = [
        replace(_node(kind, _number(kind, arrow)), branch=index, null_branch=null_branch)
        for index, kind in enumerate(branches)
        if kind != "null"
    ]
    wide = next(node for node in nodes if node.arrow == arrow)
    return replace(wide, narrower=tuple(node for node in nodes if node is not wide))


def _number(kind: object, arrow: pa.DataType) -> pa.DataType:
    """Return the Arrow type of one branch of a union.

    Args:
        kind: the branch in the schema.
        arrow: Arrow type as which the whole union is read.
    """
    return _NUMBERS.get(kind, arrow) if isinstance(kind, str) else arrow
