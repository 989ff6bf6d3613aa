"""What a message becomes, computed from Google's message one field at a time."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNSIGNED = (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64)


def expected_row(message: Any) -> dict[str, Any]:
    """Return the row of a message; maps are dictionaries, and JSON is parsed."""
    return {field.name: _cell(message, field) for field in message.DESCRIPTOR.fields}


def _cell(message: Any, field: FieldDescriptor) -> Any:
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        _, item = field.message_type.fields
        return {_key(key): _value(one, item) for key, one in value.items()}
    if field.is_repeated:
        return [_value(one, field) for one in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _value(value, field)


def _key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _value(value: Any, field: FieldDescriptor) -> Any:
    if field.message_type is not None:
        return _message(value)
    if field.enum_type is not None:
        found = field.enum_type.values_by_number.get(value)
        return str(value) if found is None else found.name
    return Decimal(value) if field.type in _UNSIGNED else value


def _message(value: Any) -> Any:
    name = value.DESCRIPTOR.full_name.removeprefix("google.protobuf.")
    if name == value.DESCRIPTOR.full_name:
        return expected_row(value)
    if name == "Timestamp":
        return _EPOCH + timedelta(microseconds=_micros(value))
    if name == "Duration":
        return _micros(value)
    if name == "Empty":
        return True
    if name in ("Struct", "Value"):
        has_kind = name == "Struct" or value.WhichOneof("kind") is not None
        return json.loads(json_format.MessageToJson(value)) if has_kind else None
    (field,) = value.DESCRIPTOR.fields
    return _value(value.value, field)


def _micros(value: Any) -> int:
    return int((value.seconds * 10**9 + value.nanos) // 1000)
