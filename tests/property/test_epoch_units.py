"""Integer timestamps in each unit, in both decoders, compared with exact fractions."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from io import BytesIO
from typing import get_args

import fastavro
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from transforms.decode.avro import AvroDecoder
from transforms.decode.avro_framing import PlainFraming
from transforms.decode.decode_result import DecodeResult
from transforms.decode.decoder import EpochUnit
from transforms.decode.json import JsonDecoder
from transforms.decode.stored_schema import StoredSchema

COLUMNS = pa.schema([("at", pa.timestamp("us", "UTC"))])
AVRO = {"type": "record", "name": "event", "fields": [{"name": "at", "type": "long"}]}

MICROSECONDS: dict[EpochUnit, Fraction] = {
    "s": Fraction(1_000_000),
    "ms": Fraction(1_000),
    "us": Fraction(1),
    "ns": Fraction(1, 1_000),
}
#: 0001-01-01T00:00:00Z and 10000-01-01T00:00:00Z.
FIRST_US, END_US = -62_135_596_800_000_000, 253_402_300_800_000_000
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


def read_json(epochs: list[int], unit: EpochUnit) -> DecodeResult:
    values = [json.dumps({"at": epoch}).encode() for epoch in epochs]
    return JsonDecoder(COLUMNS, epoch_unit=unit).decode(pa.array(values, pa.binary()))


def read_avro(epochs: list[int], unit: EpochUnit) -> DecodeResult:
    parsed, values = fastavro.parse_schema(AVRO), []
    for epoch in epochs:
        body = BytesIO()
        fastavro.schemaless_writer(body, parsed, {"at": epoch})
        values.append(body.getvalue())
    framing = PlainFraming(StoredSchema(json.dumps(AVRO)))
    decoder = AvroDecoder(COLUMNS, epoch_unit=unit, framing=framing)
    return decoder.decode(pa.array(values, pa.binary()))


def microsecond_of(epoch: int, unit: EpochUnit) -> int | None:
    """Return the time rounded down to microseconds; None outside the years 1 to 9999."""
    microsecond = epoch * MICROSECONDS[unit] // 1
    return microsecond if FIRST_US <= microsecond < END_US else None


def near(unit: EpochUnit) -> st.SearchStrategy[int]:
    """Draw integers near values at which a conversion may round wrongly or overflow."""
    scale = MICROSECONDS[unit]
    limits = [0, FIRST_US, END_US, INT64_MIN, INT64_MAX]
    centres = [0, INT64_MIN, INT64_MAX, *(int(limit / scale) for limit in limits)]
    steps = st.integers(-2_001, 2_001) | st.integers(-2, 2)
    around = st.builds(lambda centre, step: centre + step, st.sampled_from(centres), steps)
    return (around | st.integers(INT64_MIN, INT64_MAX)).map(
        lambda epoch: min(max(epoch, INT64_MIN), INT64_MAX)
    )


@pytest.mark.parametrize("read", [read_json, read_avro])
@pytest.mark.parametrize("unit", get_args(EpochUnit))
@given(data=st.data())
@example(data=None)
def test_epoch_is_rounded_down_to_microseconds_or_becomes_a_dead_letter(
    read: Callable[[list[int], EpochUnit], DecodeResult],
    unit: EpochUnit,
    data: st.DataObject | None,
) -> None:
    edges = [-1, -1_000, -1_001, INT64_MIN, INT64_MAX]
    epochs = edges if data is None else data.draw(st.lists(near(unit), min_size=1, max_size=6))
    decoded = read(epochs, unit)
    expected = {row: microsecond_of(epoch, unit) for row, epoch in enumerate(epochs)}
    accepted = {row: at for row, at in expected.items() if at is not None}
    assert decoded.accepted.tolist() == list(accepted)
    assert decoded.rows.column("at").cast(pa.int64()).to_pylist() == list(accepted.values())
    assert all(reason.startswith("column 'at': ") for reason in decoded.reasons)
