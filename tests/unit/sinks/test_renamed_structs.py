"""New fields of a struct that was renamed are added to its column."""

from __future__ import annotations

from uuid import uuid4

import pytest

from lakemark.storage import StorageLocation
from tests.json_stream import COLUMNS, JsonStream
from transforms.decode.schema_policy import SchemaPolicy

Record = dict[str, object]

HOME = {**COLUMNS, "home": "struct<zip:string>", "rooms": "array<struct<name:string>>"}


def stream_of_houses() -> JsonStream:
    aliases = {"house": "home", "chambers": "rooms"}
    place = StorageLocation(f"memory://{uuid4().hex}/houses")
    return JsonStream(place, SchemaPolicy("evolve", "evolve", aliases), HOME)


@pytest.mark.parametrize(
    ("two_names", "column"),
    [
        ({"home": {"zip": "1", "new": 1}, "house": {"zip": "1", "new": 2}}, "home"),
        ({"home": {"zip": "1", "new": 1}, "house": {"zip": "1"}}, "home"),
        ({"rooms": [{"new": 1}, {"name": "a"}], "chambers": [{}, {"name": "a"}]}, "rooms"),
    ],
)
def test_a_record_that_says_two_things_of_a_new_field_adds_no_column(
    two_names: Record, column: str
) -> None:
    stream = stream_of_houses()
    stream.write([{"id": "a", "ts": 1, "home": {"zip": "9"}}])
    before = stream.schema()
    stream.write([{"id": "b", "ts": 1, **two_names}])
    assert list(stream.read()) == ["a"]
    (reason,) = stream.reasons().values()
    assert f"column {column!r}: it has another value than its alias" in reason
    assert stream.schema() == before


@pytest.mark.parametrize(
    "two_names",
    [
        {"home": {"zip": "1", "new": 1}, "house": {"new": 1, "zip": "1", "empty": None}},
        {"home": None, "house": {"zip": "1", "new": 1}},
        {"house": {"zip": "1", "new": 1}},
    ],
)
def test_a_new_field_of_a_renamed_struct_is_one_of_the_column(two_names: Record) -> None:
    stream = stream_of_houses()
    stream.write([{"id": "a", "ts": 1, **two_names}])
    assert stream.read() == {"a": {"id": "a", "ts": 1, "home": {"zip": "1", "new": 1}}}
    assert not stream.reasons()
