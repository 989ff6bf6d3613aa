"""The dead letters that contain some records are found, in JSON and in other values."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

from lakemark.codec.varint import unsigned, zigzag
from lakemark.model.meta_columns import RECORD_KEY
from sinks.dead_letters import find_records


def found(
    value: bytes | None, keys: list[str], fields: list[str], message_key: bytes | None = None
) -> bool:
    rows = pa.table(
        {RECORD_KEY: ["orders,0,7"], "key": [message_key], "value": [value]},
        schema=pa.schema([(RECORD_KEY, pa.string()), ("key", pa.binary()), ("value", pa.binary())]),
    )
    return find_records(rows.to_batches(), keys, fields) == ["orders,0,7"]


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


def test_a_string_of_a_binary_format_is_found_although_its_length_may_look_like_a_letter() -> None:
    """The length of a UUID in Avro is the letter H, and a letter may follow the UUID."""
    for length in range(1, 70):
        key = "7" * length
        for prefix in (zigzag(length), unsigned(length)):
            assert found(b"\0\0\0\0\1" + prefix + key.encode() + b"Hx", [key], ["id"])
    assert not found(b"\0\0\0\0\1" + zigzag(3) + b"777x", ["77"], ["id"])


def test_json_after_the_number_of_a_schema_is_read() -> None:
    keys, fields = ["id:7,day:1"], ["id", "day"]
    assert found(b'\0\0\0\0\1{"id": 7, "day": 1}', keys, fields)
    assert not found(b'\0\0\0\0\1{"id": 7, "day": 2}', keys, fields)


def test_a_missing_part_of_a_key_is_compared_as_keys_contain_it() -> None:
    fields = ["id", "day"]
    for value in (b'{"id": "a", "day": null}', b'{"id": "a"}'):
        assert found(value, ["id:a,day:__null__"], fields)
    assert found(b'{"id": "a", "day": ""}', ["id:a,day:__empty__"], fields)
    assert not found(b'{"note": "a"}', ["id:__null__,day:__null__"], fields)


def test_many_keys_are_searched_about_as_fast_as_one() -> None:
    keys = [f"customer-{number:06}" for number in range(50_000)]
    started = time.process_time()
    for _ in range(100):
        assert not found(b"paid;" * 50, keys[:1], ["id"])
    rows = pa.table(
        {
            RECORD_KEY: [str(number) for number in range(100)],
            "key": pa.nulls(100, pa.binary()),
            "value": [b"paid;" * 50 + keys[-1].encode()] * 100,
        }
    )
    assert len(find_records(rows.to_batches(), keys, ["id"])) == 100
    assert time.process_time() - started < 5, "seconds; each key was searched in each value"


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
    assert found(None, ["a-1"], ["id"], b'"a-1"')
    assert found(None, ["a-1"], ["id"], b'{"id": "a-1"}')
    assert found(None, ["id:1,day:2"], ["id", "day"], b'{"id": 1, "day": 2}')
    assert not found(b"{}", ["a-1"], ["id"], b"a-2")


def test_no_record_is_found_without_record_keys() -> None:
    assert not found(b"a-1", [], ["id"])
    assert not found(b"a-1", ["a-1"], [])
