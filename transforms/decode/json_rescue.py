"""Collects the unknown fields of JSON records, as one JSON object for each record.

pyarrow infers columns for unknown fields. Only rows with values in these columns are searched one
by one. The rescued text is copied from the record, so that no number changes. For example, with the
columns ``id`` and ``home struct<zip:string>``,

``{"id": 1, "extra": 1.10, "home": {"zip": "12", "floor": 3}}`` keeps
``{"extra":1.10,"home":{"floor":3}}``. An array whose elements have unknown fields is kept as a
whole. A field that is null counts as absent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.schema.evolution import ELEMENT, Path
from transforms.decode.json_scanner import (
    find_elements,
    find_members,
    parse_structure,
    spell_out_constants,
)

Mask = npt.NDArray[np.bool_]

#: The largest depth at which types of unknown fields are inferred. pyarrow infers by recursion. Its
#: stack overflows at some tens of thousands of levels, and a message of one megabyte can have half
#: a million levels.
_MAX_INFERRED_DEPTH = 1_000


def field_types(fields: Iterable[pa.Field]) -> dict[str, pa.DataType]:
    """Return the types of a schema's columns, or of a struct's fields, by name."""
    return {field.name: field.type for field in fields}


def is_shallow(values: pa.Array) -> bool:
    """Return whether no value is nested so deeply that type inference could crash."""
    deep = pc.greater(pc.binary_length(values), 2 * _MAX_INFERRED_DEPTH)
    if not pc.any(deep).as_py():
        return True
    long_values = values.filter(deep)
    brackets = pc.add(pc.count_substring(long_values, "{"), pc.count_substring(long_values, "["))
    return int(pc.max(brackets).as_py()) <= _MAX_INFERRED_DEPTH


def is_not_null(read: pa.Array) -> Mask:
    """Return which values are not null."""
    given: Mask = read.is_valid().to_numpy(zero_copy_only=False)
    return given


def has_content(read: pa.Array) -> Mask:
    """Return which values contain anything other than nulls and empty arrays or objects."""
    found = np.zeros(len(read), np.bool_)
    if pa.types.is_struct(read.type):
        for number in range(read.type.num_fields):
            found |= has_content(read.field(number))
        return found & is_not_null(read)
    if pa.types.is_list(read.type):
        found[pc.list_parent_indices(read).to_numpy()[has_content(read.values)]] = True
        return found
    return is_not_null(read)


def _never(_: Path) -> bool:
    return False


def find_unknown(
    parsed: pa.Table,
    schema: pa.Schema,
    is_counted: Callable[[pa.Array], Mask] = is_not_null,
    is_ignored: Callable[[Path], bool] = _never,
) -> Mask:
    """Return which rows have a counted field that ``schema`` lacks, at any depth.

    Args:
        parsed: the known and the unknown fields.
        schema: the known fields.
        is_counted: returns which values of an unknown field count.
        is_ignored: whether the unknown field at a path is ignored (``SchemaPolicy.is_ignored``).
    """
    types = field_types(schema)
    found = np.zeros(parsed.num_rows, np.bool_)
    for name, column in zip(parsed.column_names, parsed.columns, strict=True):
        if _has_more_fields(column.type, types.get(name)):
            # A block has one chunk. It is not copied: pyarrow cannot copy the type of [null].
            search = _UnknownSearch(is_counted, is_ignored)
            found |= search.find(column.chunk(0), types.get(name), (name,))
    return found


def count_unknown(read: pa.Schema, schema: pa.Schema) -> int:
    """Count the fields that are not in ``schema``, at any depth."""
    return _count_unknown(pa.struct(list(read)), pa.struct(list(schema)))


def unknown_fields(text: str, schema: pa.Schema, kept: pa.Schema | None = None) -> str | None:
    """Return the unknown fields of one record as a JSON object; None if it has none.

    Args:
        text: the record.
        schema: the known columns.
        kept: if given, only unknown fields that are in this schema are returned.

    Raises:
        ValueError: the record is nested too deeply; or an object has two values for a field, so
            that JSON readers would keep only one of them.
    """
    text = spell_out_constants(text)
    wanted = None if kept is None else field_types(kept)
    with _depth_error():
        return _unknown_members(text, text.index("{"), field_types(schema), wanted)


def known_fields(text: str, schema: pa.Schema) -> str:
    """Return the known fields of one record, including nested fields, as a JSON object.

    Raises:
        ValueError: see ``unknown_fields``.
    """
    text = spell_out_constants(text)
    with _depth_error():
        return _known_members(text, text.index("{"), field_types(schema))


@contextmanager
def _depth_error() -> Iterator[None]:
    try:
        yield
    except RecursionError:
        message = "it is nested too deeply"
        raise ValueError(message) from None


def _has_more_fields(read: pa.DataType, known: pa.DataType | None) -> bool:
    """Return whether a type has fields that the known type lacks."""
    if known is None:
        return True
    if pa.types.is_struct(read) and pa.types.is_struct(known):
        types = field_types(known)
        return any(_has_more_fields(field.type, types.get(field.name)) for field in read)
    if pa.types.is_list(read) and pa.types.is_list(known):
        return _has_more_fields(read.value_type, known.value_type)
    return False


def _count_unknown(read: pa.DataType, known: pa.DataType | None) -> int:
    """Count the fields of a type that the known type lacks; all fields if no type is known."""
    if pa.types.is_list(read):
        inside = known.value_type if known is not None and pa.types.is_list(known) else None
        return _count_unknown(read.value_type, inside)
    if not pa.types.is_struct(read):
        return 0
    types = field_types(known) if known is not None and pa.types.is_struct(known) else {}
    return sum(
        (field.name not in types) + _count_unknown(field.type, types.get(field.name))
        for field in read
    )


@dataclass(frozen=True, slots=True)
class _UnknownSearch:
    is_counted: Callable[[pa.Array], Mask]
    is_ignored: Callable[[Path], bool]

    def find(self, read: pa.Array, known: pa.DataType | None, path: Path) -> Mask:
        """Return which values are unknown or contain unknown fields."""
        found = np.zeros(len(read), np.bool_)
        if known is None:
            return found if self.is_ignored(path) else self.is_counted(read)
        if pa.types.is_struct(read.type) and pa.types.is_struct(known):
            types = field_types(known)
            for number, field in enumerate(read.type):
                within = (*path, field.name)
                found |= self.find(read.field(number), types.get(field.name), within)
        elif pa.types.is_list(read.type) and pa.types.is_list(known):
            inside = self.find(read.values, known.value_type, (*path, ELEMENT))
            found[pc.list_parent_indices(read).to_numpy()[inside]] = True
        return found


_Types = Mapping[str, pa.DataType]


def _unknown_members(text: str, start: int, known: _Types, wanted: _Types | None) -> str | None:
    kept: dict[str, str] = {}
    for name, begin, end in find_members(text, start):
        part: str | None = text[begin:end]
        if name in known:
            part = _unknown_part(text, begin, end, known[name], wanted and wanted.get(name))
        elif wanted is not None and name not in wanted:
            continue
        if part is not None and part != "null":
            if name in kept:
                message = f"{name!r} is given twice"
                raise ValueError(message)
            kept[name] = part
    if not kept:
        return None
    return "{" + ",".join(f"{json.dumps(name)}:{part}" for name, part in kept.items()) + "}"


def _known_members(text: str, start: int, known: _Types) -> str:
    parts = [
        f"{json.dumps(name)}:{_known_part(text, begin, end, known[name])}"
        for name, begin, end in find_members(text, start)
        if name in known
    ]
    return "{" + ",".join(parts) + "}"


def _known_part(text: str, begin: int, end: int, known: pa.DataType) -> str:
    if pa.types.is_struct(known) and text[begin] == "{":
        return _known_members(text, begin, field_types(known))
    if pa.types.is_list(known) and text[begin] == "[" and pa.types.is_nested(known.value_type):
        elements = find_elements(text, begin)
        return f"[{','.join(_known_part(text, *span, known.value_type) for span in elements)}]"
    return text[begin:end]


def _unknown_part(
    text: str, begin: int, end: int, known: pa.DataType, wanted: pa.DataType | None
) -> str | None:
    """Return the unknown part of the value of a known column; None if there is none."""
    if pa.types.is_struct(known) and text[begin] == "{":
        types = field_types(known)
        inside = None if wanted is None else field_types(wanted)
        return _unknown_members(text, begin, types, inside)
    if wanted is not None:
        return None  # arrays are kept whole, or not at all
    if pa.types.is_list(known) and _has_unknown(parse_structure(text, begin)[0], known):
        return text[begin:end]
    return None


def _has_unknown(value: object, known: pa.DataType) -> bool:
    if isinstance(value, list) and pa.types.is_list(known):
        return any(_has_unknown(element, known.value_type) for element in value)
    if isinstance(value, dict) and pa.types.is_struct(known):
        types = field_types(known)
        return any(
            _has_unknown(member, types[name]) if name in types else member is not None
            for name, member in value.items()
        )
    return False
