"""Each record of a batch is in the part of its table, or among the rejects, in order of arrival."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.execution.runner import LocalRunner
from tests.depth import examples
from tests.json_stream import RECORDED_AT
from transforms import routing
from transforms.decode.decode_result import DecodeResult
from transforms.decode.json import JsonDecoder
from transforms.decode.schema_policy import SchemaPolicy
from transforms.decoded_rows import DECODED, decode_values
from transforms.reject_reason import RejectCode, RejectReason
from transforms.routing import FieldRoute, divide

_DECODER = JsonDecoder(pa.schema([("type", pa.string())]), None, "ms", SchemaPolicy("ignore"))
_OF_TABLES = JsonDecoder(pa.schema([("id", pa.int64()), ("type", pa.string())]))
_OF_OTHER_TABLES = JsonDecoder(pa.schema([("id", pa.string())]))

#: The rows of these tables take more memory than the records, except for long records.
_OF_WIDE_TABLES = JsonDecoder(
    pa.schema([*_OF_TABLES.schema, *((f"column{number}", pa.int64()) for number in range(40))])
)
_LONG = json.dumps({"type": "a", "id": 1, "unknown": "x" * 9_000}).encode()

_VALUES = st.lists(
    st.none()
    | st.just(b"{")
    | st.sampled_from(["a", "b", "refused", None, 5]).map(
        lambda name: json.dumps({"type": name, "id": 1}).encode()
    )
    | st.just(b'{"type": "a", "id": "no number"}')
    | st.just(_LONG)
    | st.just(b"{}"),
    max_size=20,
)


def _expected(value: bytes | None, default: str | None, *, ignores: bool) -> str:
    """Return the table of a record; the code of its reject; or "ignored"."""
    if value is None:
        return "ignored" if ignores else RejectCode.MISSING_ROUTE
    if value == b"{":
        return RejectCode.INVALID_MESSAGE
    name = json.loads(value).get("type")
    if name is None:
        return default or RejectCode.MISSING_ROUTE
    if not isinstance(name, str):
        return RejectCode.INVALID_VALUE
    return RejectCode.INVALID_ROUTE if name == "refused" else name


def _records(values: Sequence[bytes | None]) -> pa.Table:
    count = len(values)
    return pa.table(
        {
            "value": pa.array(values, pa.binary()),
            "key": pa.nulls(count, pa.binary()),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": pa.array([RECORDED_AT] * count, pa.timestamp("us", "UTC")),
        }
    )


def _check_rows(records: pa.Table) -> None:
    """Check that the decoder of the tables and any other one decode the records as without a route.

    They must give the same rows and the same reasons, whether or not the route has decoded them.
    """
    plain = records.select(["value", "key"])
    for decoder in (_OF_TABLES, _OF_OTHER_TABLES, _OF_WIDE_TABLES):
        found, expected = decode_values(decoder, records), decode_values(decoder, plain)
        assert found.rows.equals(expected.rows)
        assert found.accepted.tolist() == expected.accepted.tolist()
        assert found.rejected.tolist() == expected.rejected.tolist()
        assert found.reasons == expected.reasons


@settings(max_examples=examples(200), deadline=None)
@given(
    _VALUES,
    st.sampled_from([None, "a", "other", "refused"]),
    st.booleans(),
    st.sampled_from([1, 3, 20]),
    st.sampled_from([None, _OF_TABLES, _OF_WIDE_TABLES]),
)
def test_each_record_is_in_one_part_in_order_of_arrival(
    values: list[bytes | None],
    default: str | None,
    ignores: bool,
    piece: int,
    of_tables: JsonDecoder | None,
) -> None:
    count, records = len(values), _records(values)

    def refuse(name: str) -> RejectReason | None:
        is_refused = name == "refused"
        return RejectReason(RejectCode.INVALID_ROUTE, "refused") if is_refused else None

    route = FieldRoute("type", _DECODER, of_tables, ignores)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(routing, "_PIECE_RECORDS", piece)
        divided = divide(records, route, refuse, default, "shop", LocalRunner(2))
    found: dict[int, str] = {}
    for name, part in divided.parts.items():
        _check_rows(part)
        offsets = part.column("offset").to_pylist()
        assert offsets == sorted(offsets)
        assert part.num_rows
        found |= dict.fromkeys(offsets, name)
    rows = divided.rejects.rows.to_pylist()
    found |= {row["offset"]: row["code"] for row in rows}
    assert all(row["value"] == values[row["offset"]] and row["stage"] == "route" for row in rows)
    expected = {
        offset: name
        for offset, value in enumerate(values)
        if (name := _expected(value, default, ignores=ignores)) != "ignored"
    }
    assert found == expected
    assert divided.ignored == count - len(expected)
    parts = sum(part.num_rows for part in divided.parts.values())
    assert parts + len(divided.rejects) + divided.ignored == count


@pytest.mark.parametrize(
    ("values", "is_kept"),
    [
        pytest.param([_LONG] * 4, True, id="small rows"),
        pytest.param([_LONG, _LONG, b"{}", b"{}"], False, id="large rows of one piece"),
        pytest.param([b"{}", b"{}", _LONG, _LONG], False, id="large rows are seen at once"),
        pytest.param([b"{}", _LONG, _LONG, _LONG], True, id="the whole piece counts"),
    ],
)
def test_decoded_rows_are_kept_only_if_they_need_no_more_memory_than_the_records(
    values: Sequence[bytes], is_kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the rows of a batch with many columns could need a hundred times its memory."""
    monkeypatch.setattr(routing, "_PIECE_RECORDS", 2)
    route = FieldRoute("type", _DECODER, _OF_WIDE_TABLES)
    divided = divide(_records(values), route, lambda _: None, "other", "shop", LocalRunner(1))
    for part in divided.parts.values():
        assert (DECODED in part.column_names) == is_kept
        _check_rows(part)


@pytest.mark.parametrize(
    ("value", "columns"), [(b"{}", [(2, 42), (9, 1)]), (_LONG, [(2, 42), (9, 42)])]
)
def test_few_records_show_that_decoded_rows_are_large(
    value: bytes, columns: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row of many columns takes much longer to decode than the field of the route."""
    monkeypatch.setattr(routing, "_PROBED_RECORDS", 2)
    decode, decoded = JsonDecoder.decode, list[tuple[int, int]]()

    def noting(decoder: JsonDecoder, values: pa.Array | pa.ChunkedArray) -> DecodeResult:
        decoded.append((len(values), len(decoder.schema)))
        return decode(decoder, values)

    monkeypatch.setattr(JsonDecoder, "decode", noting)
    FieldRoute("type", _DECODER, _OF_WIDE_TABLES).values(_records([value] * 9))
    assert decoded == columns


def test_a_rescue_column_is_no_column_of_another_decoder() -> None:
    policy = SchemaPolicy("ignore")
    rescuing = JsonDecoder(pa.schema([("id", pa.int64())]), "rest", "ms", policy)
    declaring = JsonDecoder(pa.schema([("id", pa.int64()), ("rest", pa.string())]))
    assert rescuing.rows_schema == declaring.rows_schema
    assert rescuing.identity != declaring.identity
