from __future__ import annotations

import json

import pyarrow as pa
import pytest

from transforms.decode.json import JsonDecoder
from transforms.decode.json_inference import infer_schema
from transforms.schema_text import print_schema


def inferred(*records: object) -> dict[str, str]:
    values = [record if isinstance(record, bytes) else json.dumps(record) for record in records]
    return print_schema(infer_schema(pa.array(values, pa.binary())))


@pytest.mark.parametrize(
    ("records", "columns"),
    [
        ([{"b": "2024-01-01T00:00:00Z", "a": 1}], {"b": "string", "a": "bigint"}),
        ([{"a": 1}, {"a": 1.5}, {"a": None}], {"a": "double"}),
        ([{"a": 2**63}], {"a": "double"}),
        ([{"a": True}, {"a": False}], {"a": "boolean"}),
        ([{"a": None}], {"a": "string"}),
        ([{"a": []}, {"b": [None]}], {"a": "array<string>", "b": "array<string>"}),
        ([{"a": [{"x": 1}, {"y": "z"}]}], {"a": "array<struct<x:bigint,y:string>>"}),
        (
            [{"a": {"b": {"c": 1}}}, {"a": {"d": None}}],
            {"a": "struct<b:struct<c:bigint>,d:string>"},
        ),
        ([{"a": 1}, {"a": "x"}, {"a": 2}], {"a": "bigint"}),
        ([{"a": {}, "b": [{}], "c": {"d": {}}, "e": 1}], {"e": "bigint"}),
        ([b"", b"[1]", b"{broken}", b'{"a":\xff}', {"a": 1}], {"a": "bigint"}),
    ],
)
def test_columns_take_the_kind_of_most_values(
    records: list[object], columns: dict[str, str]
) -> None:
    assert inferred(*records) == columns


def test_what_was_inferred_reads_the_records_it_came_from() -> None:
    records = [{"id": n, "tags": [{"k": str(n)}], "at": "2024-01-01", "x": n / 2} for n in range(9)]
    values = pa.chunked_array([pa.array([json.dumps(record).encode()]) for record in records])
    decoded = JsonDecoder(infer_schema(values)).decode(values)
    assert decoded.rows.to_pylist() == records


def test_nothing_readable_gives_no_columns_and_depth_does_no_harm() -> None:
    deep = b'{"a":' + b"[" * 900 + b"]" * 900 + b"}"
    too_deep = deep.replace(b"[", b"[" * 99).replace(b"]", b"]" * 99)
    assert len(infer_schema(pa.array([b"", b"1", None, too_deep], pa.binary()))) == 0
    assert infer_schema(pa.array([deep])).names == ["a"]
