"""Gives the times of Debezium's Avro schemas the logical types that they lack.

Debezium marks the numbers of dates and timestamps with a ``connect.name``, which Avro ignores.
Times of the day, and nanoseconds, remain numbers. Source: "Temporal types" in the documentation of
Debezium's connectors; ``AvroData`` of Confluent's converter, which writes ``connect.name``.
"""

from __future__ import annotations

_TIME = "io.debezium.time."

#: For each name: the type that the schema has, and the logical type of the same values.
_LOGICAL_TYPES = {
    f"{_TIME}Date": ("int", "date"),
    f"{_TIME}Timestamp": ("long", "timestamp-millis"),
    f"{_TIME}MicroTimestamp": ("long", "timestamp-micros"),
}


def with_logical_types(schema: object) -> object:
    """Return an Avro schema whose dates and timestamps of Debezium have logical types."""
    if isinstance(schema, list):
        return [with_logical_types(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    kind, logical = _LOGICAL_TYPES.get(str(schema.get("connect.name")), (None, None))
    if kind is not None and schema.get("type") == kind:
        return {"type": kind, "logicalType": logical}
    changed = dict(schema)
    for part in ("type", "items", "values"):
        if part in schema:
            changed[part] = with_logical_types(schema[part])
    if isinstance(schema.get("fields"), list):
        changed["fields"] = [with_logical_types(field) for field in schema["fields"]]
    return changed
