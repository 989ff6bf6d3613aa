"""Refuses Avro schemas with values of no bytes, before the schemas are used to read data.

A reader usually notices a damaged length because it reaches the end of the file too early. But a
value of no bytes does not bring the reader closer to the end. For example, an array stores the
number of its items. If one damaged byte in the schema removes the fields of the items, a file of
one kilobyte can claim a billion items. Reading them would fill the memory without an error.
"""

from __future__ import annotations

from lakemark.errors import CorruptData


def check_bounded(schema: object, path: str) -> None:
    """Check that each value of a schema takes at least one byte, and that no type contains itself.

    Args:
        schema: the parsed JSON of the schema, from a container or a log block.
        path: names the file in errors.

    Raises:
        CorruptData: the schema has a record without fields or inside itself, a fixed of no bytes,
            or an array of nulls.
    """
    try:
        takes_bytes = _takes_bytes(schema, path, ())
    except RecursionError as error:
        raise CorruptData(path, None, "an Avro schema of some depth", "one too deep") from error
    if not takes_bytes:
        raise _unbounded(schema, path)


def _takes_bytes(schema: object, path: str, around: tuple[str, ...]) -> bool:
    """Return whether each value of the schema takes at least one byte.

    Args:
        schema: a type, or the name of a type. A named type was already checked at its definition.
        path: names the file in errors.
        around: names of the records that contain this type, without namespaces.
    """
    if isinstance(schema, list):
        for branch in schema:
            _takes_bytes(branch, path, around)
        return True
    if not isinstance(schema, dict):
        if _last_name(schema) in around:
            raise CorruptData(path, None, "records of other records", f"{schema} in itself")
        return schema != "null"
    return _complex_takes_bytes(schema, path, around)


def _complex_takes_bytes(schema: dict[str, object], path: str, around: tuple[str, ...]) -> bool:
    kind = schema.get("type")
    if kind == "record":
        return _record_takes_bytes(schema, path, around)
    if kind == "fixed":
        return schema.get("size") not in (0, None)
    if kind == "array":
        if not _takes_bytes(schema.get("items"), path, around):
            raise _unbounded(schema, path)
        return True
    if kind == "map":
        _takes_bytes(schema.get("values"), path, around)
        return True
    return _takes_bytes(kind, path, around)


def _record_takes_bytes(schema: dict[str, object], path: str, around: tuple[str, ...]) -> bool:
    fields = schema.get("fields")
    within = (*around, _last_name(schema.get("name")))
    types = [f.get("type") if isinstance(f, dict) else f for f in _listed(fields)]
    # Check all fields, even after one that takes bytes: a later one may contain an invalid array.
    takes_bytes = [_takes_bytes(kind, path, within) for kind in types]
    if not any(takes_bytes):
        raise _unbounded(schema, path)
    return True


def _last_name(name: object) -> str:
    return str(name).rpartition(".")[2]


def _listed(fields: object) -> list[object]:
    return fields if isinstance(fields, list) else []


def _unbounded(schema: object, path: str) -> CorruptData:
    return CorruptData(path, None, "an Avro schema of values with bytes", str(schema)[:80])
