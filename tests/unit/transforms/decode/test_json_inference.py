from __future__ import annotations

import json
import time
from collections.abc import Collection
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.errors import InvalidConfig
from transforms.decode.json import JsonDecoder
from transforms.decode.json_inference import InferredSchema, infer_schema
from transforms.schema_text import print_schema


def infer(*records: object, texts: Collection[str] = ()) -> InferredSchema:
    values = [record if isinstance(record, bytes) else json.dumps(record) for record in records]
    return infer_schema(pa.array(values, pa.binary()), texts=texts)


def inferred(*records: object) -> dict[str, str]:
    return print_schema(infer(*records).schema)


@pytest.mark.parametrize(
    ("records", "columns"),
    [
        ([{"b": "2024-01-01", "a": 1}], {"b": "string", "a": "bigint"}),
        ([{"a": 1}, {"a": 1.5}, {"a": None}], {"a": "double"}),
        ([{"a": 2**63 - 1}, {"a": -(2**63)}], {"a": "bigint"}),
        ([{"a": 1}, {"a": 2**63}], {"a": "decimal(38,0)"}),
        ([{"a": -(2**63) - 1}], {"a": "decimal(38,0)"}),
        ([{"a": 10**38 - 1}], {"a": "decimal(38,0)"}),
        ([{"a": 1}, {"a": 2}, {"a": 10**38}], {"a": "bigint"}),
        ([{"a": 2**64}, {"a": 2**64}, b'{"a":%s}' % (b"1" * 5000)], {"a": "decimal(38,0)"}),
        ([b'{"a":-0}'], {"a": "bigint"}),
        ([b'{"a":1e3}'], {"a": "double"}),
        ([b'{"a":1.0}', {"a": 2**53}], {"a": "double"}),
        ([b'{"a":-0.0}', b'{"a":1e400}', b'{"a":NaN}', b'{"a":-Inf}'], {"a": "double"}),
        ([{"a": 0.25}, {"a": 2**53 + 1}], {"a": "decimal(38,12)"}),
        ([{"a": [{"b": 2**64}]}], {"a": "array<struct<b:decimal(38,0)>>"}),
        ([{"a": True}, {"a": False}], {"a": "boolean"}),
        ([{"a": [{"x": 1}, {"y": "z"}]}], {"a": "array<struct<x:bigint,y:string>>"}),
        (
            [{"a": {"b": {"c": 1}}}, {"a": {"d": None}}],
            {"a": "struct<b:struct<c:bigint>>"},
        ),
        ([{"a": 1}, {"a": "x"}, {"a": 2}], {"a": "bigint"}),
        ([{"a": {}, "b": [{}], "c": {"d": {}}, "e": 1}], {"e": "bigint"}),
        ([b"", b"[1]", b"{broken}", b'{"a":\xff}', {"a": 1}], {"a": "bigint"}),
    ],
)
def test_column_has_the_kind_of_most_values(records: list[object], columns: dict[str, str]) -> None:
    assert inferred(*records) == columns


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([b"1", b"0.25"], "decimal(38,19)"),
        ([b"1e3"], "decimal(38,17)"),
        ([b"1.0", b"NaN"], "decimal(38,18)"),
        ([b"18446744073709551617", b"0.5"], "decimal(38,9)"),
        ([b"1" * 30, b"0.12345678"], "decimal(38,8)"),
        ([b"7"], "bigint"),
    ],
)
def test_fractions_of_a_key_are_inferred_as_decimals(values: list[bytes], kind: str) -> None:
    records = pa.array([b'{"a":%s,"k":{"a":%s}}' % (value, value) for value in values])
    expected = {"a": kind, "k": f"struct<a:{kind}>"}
    assert print_schema(infer_schema(records, exact=("a", "k.a")).schema) == expected


@pytest.mark.parametrize(
    "values",
    [
        [b"1" * 39],
        [b"1" * 39, b"1" * 400, b"1"],
        [b"1" * 20, b"0." + b"1" * 19],
        [b"1e30", b"1e-30"],
    ],
)
def test_field_whose_numbers_fit_no_type_exactly_is_refused(values: list[bytes]) -> None:
    records = pa.array([b'{"k":[{"a":%s}]}' % value for value in values])
    with pytest.raises(InvalidConfig, match=r"field 'k\[\]\.a': its numbers need more than the 38"):
        infer_schema(records, exact=("k[].a",))


def test_fractions_that_a_double_rounds_are_reported() -> None:
    found = infer(
        b'{"a":0.12345678901234567,"b":{"x":0.123456789012345678},"c":1.2345678901234567890e-20}',
        b'{"a":1000000000000000000000.0,"c":0.5}',
    )
    assert set(found.schema.types) == {pa.float64(), pa.struct([("x", pa.float64())])}
    assert found.rounded == ("b.x", "c")


def test_field_with_a_name_of_hudi_is_reported_and_not_in_the_schema() -> None:
    found = infer(
        {"id": 1, "_hoodie_operation": "D", "_HOODIE_x": None, "a": {"_hoodie_y": 1}},
        {"_hoodie_commit_time": "1", "_hoodie_is_deleted": True},
    )
    assert print_schema(found.schema) == {"id": "bigint", "a": "struct<_hoodie_y:bigint>"}
    expected = "_hoodie_operation", "_HOODIE_x", "_hoodie_commit_time", "_hoodie_is_deleted"
    assert found.reserved == expected
    assert found.untyped == ()


numbers = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.builds(
        lambda centre, step: str(centre + step),
        st.sampled_from([2**53, 2**63, 2**64, 10**38]),
        st.integers(-2, 2),
    ),
    st.decimals(
        allow_nan=False, allow_infinity=False, min_value=-(10**20), max_value=10**20, places=9
    ).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(json.dumps),
    st.sampled_from(["1e3", "1.0", "-0", "-0.0", "0.1", "0.10", "0.1000000000000000055", "1E+2"]),
)


@settings(deadline=None)
@given(st.lists(numbers, min_size=1, max_size=5), st.lists(numbers, max_size=5))
def test_different_numbers_of_an_inferred_key_stay_different(
    sampled: list[str], later: list[str]
) -> None:
    sample = pa.array([f'{{"id":{text}}}' for text in sampled]).cast(pa.binary())
    try:
        schema = infer_schema(sample, exact=("id",)).schema
    except InvalidConfig as error:
        assert str(error).startswith("field 'id': ")
        return
    texts = [*sampled, *later]
    values = pa.array([f'{{"id":{text}}}' for text in texts]).cast(pa.binary())
    decoded = JsonDecoder(schema).decode(values)
    stored = decoded.rows.column("id").to_pylist()
    exact = [Decimal(texts[index]) for index in decoded.accepted]
    assert [Decimal(one) for one in stored] == exact
    assert all(reason.startswith("column 'id': ") for reason in decoded.reasons)


def test_inferred_schema_reads_the_sampled_records() -> None:
    records = [{"id": n, "tags": [{"k": str(n)}], "at": "2024-01-01", "x": n / 2} for n in range(9)]
    values = pa.chunked_array([pa.array([json.dumps(record).encode()]) for record in records])
    decoded = JsonDecoder(infer_schema(values).schema).decode(values)
    assert decoded.rows.to_pylist() == records


def test_field_without_values_is_reported_and_not_in_the_schema() -> None:
    found = infer(
        {"id": 1, "a": None, "b": [], "c": [None], "d": {}, "e": {"x": None, "y": 2}, "f": [{}]},
        {"id": 2, "a": None, "b": None, "g": [{"x": None}], "h": {"x": {"y": []}}},
        b"broken",
    )
    assert print_schema(found.schema) == {"id": "bigint", "e": "struct<y:bigint>"}
    assert found.untyped == ("a", "b", "c", "d", "e.x", "f[]", "g[].x", "h.x.y")
    assert found.records == 2


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["2024-01-01T00:00:00Z", "2024-01-01 23:59+05:30"], "timestamp"),
        (["2024-02-29T00:00:00.123456789-0800", "2024-01-01T00:00:00+02"], "timestamp"),
        (["2024-01-01T00:00:00", "2024-01-01 10:00"], "timestamp"),
        (["2024-01-01T00:00:00Z", None], "timestamp"),
        (["2024-01-01T00:00:00Z", "2024-01-01T00:00:00"], "string"),
        (["2024-01-01T00:00:00Z"] * 9 + ["2024-01-01"], "string"),
        (["2024-01-01T00:00:00Z"] * 9 + ["unknown"], "string"),
        (["2024-01-01T00:00:00Z"] * 9 + [""], "string"),
        (["2024-01-01T00:00:00Z"] * 9 + [1704067200000], "string"),
        (["2024-02-30T00:00:00Z"], "string"),
        (["2024-01-01T24:00:00Z"], "string"),
        (["2024-01-01T23:59:60Z"], "string"),
        (["0001-01-01T00:00:00+05:00"], "string"),
        (["10:00+05:00"], "string"),
        (["2024-W01-1T00:00:00Z"], "string"),
        (["20240101T000000Z"], "string"),
    ],
    ids=str,
)
def test_iso_times_become_timestamps_if_all_values_agree(texts: list[object], kind: str) -> None:
    assert inferred(*({"at": text} for text in texts)) == {"at": kind}
    nested = inferred({"a": [{"at": text} for text in texts]})
    assert nested == {"a": f"array<struct<at:{kind}>>"}


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
def test_first_and_last_times_without_offset_are_timestamps_in_each_zone_of_the_machine(
    zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        for text in ("0001-01-01T00:00:00", "9999-12-31T23:59:59"):
            assert inferred({"at": text}) == {"at": "timestamp"}
    finally:
        monkeypatch.undo()
        time.tzset()


def test_record_key_that_looks_like_a_time_is_a_string() -> None:
    text = "2024-01-01T00:00:00Z"
    found = infer({"id": text, "at": text, "k": {"id": text}}, texts=("id", "k.id"))
    expected = {"id": "string", "at": "timestamp", "k": "struct<id:string>"}
    assert print_schema(found.schema) == expected


instants = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31))  # noqa: DTZ001 as written
times = st.builds(
    lambda at, layout, fraction, zone: (
        f"{at.year:04}{at.strftime(layout)}{fraction if layout.endswith('S') else ''}{zone}"
    ),
    instants,
    st.sampled_from(["-%m-%dT%H:%M:%S", "-%m-%d %H:%M:%S", "-%m-%dT%H:%M"]),
    st.sampled_from(["", ".5", ".123456", ".123456789"]),
    st.sampled_from(["", "Z", "+00:00", "-05:30", "+0530", "+02", "+23:59"]),
)


@settings(deadline=None)
@given(st.lists(times | times.flatmap(lambda text: st.sampled_from([text[:-1], text + "0"]))))
def test_decoder_reads_every_value_that_makes_a_timestamp(texts: list[str]) -> None:
    values = pa.array([json.dumps({"at": text}) for text in texts], pa.binary())
    schema = infer_schema(values).schema
    decoded = JsonDecoder(schema).decode(values)
    assert decoded.reasons == []


def test_decoder_rejects_later_value_that_is_not_a_timestamp() -> None:
    schema = infer({"at": "2024-01-01T00:00:00Z"}).schema
    later = [{"at": "2024-01-01T01:00:00+01:00"}, {"at": "yesterday"}]
    decoded = JsonDecoder(schema).decode(pa.array([json.dumps(one) for one in later], pa.binary()))
    assert decoded.rows.to_pylist() == [{"at": datetime(2024, 1, 1, tzinfo=UTC)}]
    (reason,) = decoded.reasons
    assert reason.startswith("column 'at': string 'yesterday' is not a timestamp (ISO-8601")


def test_broken_and_deeply_nested_records_give_no_columns() -> None:
    deep = b'{"a":' + b"[" * 900 + b"]" * 900 + b"}"
    too_deep = deep.replace(b"[", b"[" * 99).replace(b"]", b"]" * 99)
    assert len(infer_schema(pa.array([b"", b"1", None, too_deep], pa.binary())).schema) == 0
    assert infer_schema(pa.array([deep])).schema.names == ["a"]
