"""The dead letters that contain some records are found, in JSON and in other values."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakemark.model.meta_columns import RECORD_KEY
from sinks.dead_letters import find_records


def found(
    value: bytes | None, keys: list[str], fields: list[str], message_key: bytes | None = None
) -> bool:
    rows = pa.table(
        {RECORD_KEY: ["orders,0,7"], "key": [message_key], "value": [value]},
        schema=pa.schema([(RECORD_KEY, pa.string()), ("key", pa.binary()), ("value", pa.binary())]),
    )
    return find_records(rows, keys, fields) == ["orders,0,7"]


@pytest.mark.parametrize(
    ("value", "is_found"),
    [
        (b'{"id": "a-1", "amount": "much"}', True),
        (b'{"payload": {"before": null, "after": [{"id": "a-1"}]}}', True),
        (b'{"id": "a-12"}', False),
        (b'{"note": "a-1"}', False),
        (b'{"id": "a-1", "amount": ', True),
        (b"a-1;12;paid", True),
        (b"a-12;12;paid", False),
        (b"b-a-1;12;paid", False),
        (b"\xff\xfe\x06a-1\x00", True),
        (b"[" * 100_000 + b'"a-1"', True),
        (b"", False),
        (None, False),
    ],
)
def test_a_record_with_one_key_field_is_found(value: bytes | None, is_found: bool) -> None:
    assert found(value, ["a-1", "zz"], ["id"]) is is_found
    assert found(value, ["id:a-1"], ["id"]) is is_found


def test_numbers_and_fields_inside_of_objects_are_compared_as_keys_contain_them() -> None:
    assert found(b'{"id": 12}', ["12"], ["id"])
    assert not found(b'{"id": 12.5}', ["12"], ["id"])
    assert found(b'{"customer": {"id": 12}}', ["12"], ["customer.id"])
    assert not found(b'{"customer": 12}', ["12"], ["customer.id"])


def test_a_record_with_several_key_fields_needs_all_of_them() -> None:
    keys, fields = ["id:7,day:2026-01-01"], ["id", "day"]
    assert found(b'{"id": 7, "day": "2026-01-01"}', keys, fields)
    assert not found(b'{"id": 7, "day": "2026-01-02"}', keys, fields)
    assert not found(b'{"id": 7}', keys, fields)
    assert not found(b"7 2026-01-01", keys, fields)


def test_the_key_of_the_message_is_compared() -> None:
    assert found(None, ["a-1"], ["id"], b"a-1")
    assert found(b"{}", ["a-1"], ["id"], b"a-1")
    assert not found(b"{}", ["a-1"], ["id"], b"a-2")


def test_no_record_is_found_without_record_keys() -> None:
    assert not found(b"a-1", [], ["id"])
    assert not found(b"a-1", ["a-1"], [])
