"""SQL returns the rows of a table exactly, and those that a model of the condition selects.

The model tests one row after the other. As in DuckDB, NaN is equal to itself and greater than all
numbers, and a test of a null is unknown.
"""

from __future__ import annotations

import math
import struct
from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakemark
from lakemark.sql import query
from tests.depth import examples

pytest.importorskip("duckdb")

Row: TypeAlias = Mapping[str, Any]
#: Returns whether a row meets a condition; None if it is unknown.
Model: TypeAlias = Callable[[Row], bool | None]
Modelled: TypeAlias = tuple[str, Model]

_NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
_LOCAL = _NOON.replace(tzinfo=None)
_FLOATS = {
    "0": 0.0,
    "-0.0::double": -0.0,
    "0.5": 0.5,
    f"{-(2.0**99)!r}": -(2.0**99),
    "'nan'::double": math.nan,
    "'inf'::double": math.inf,
    "'-inf'::double": -math.inf,
}
_OLD_DAY = datetime(1901, 2, 3, tzinfo=UTC).replace(tzinfo=None)
_TENTH: float = pa.scalar(0.1, pa.float32()).as_py()
_EPOCH_BEFORE_EPOCH = datetime(1901, 2, 3, 4, 5, 6, 789012, tzinfo=UTC)

#: For each column: its type, and values by their literal in SQL.
VALUES: dict[str, tuple[pa.DataType, dict[str, Any]]] = {
    "n": (pa.int32(), {str(n): n for n in (-(2**31), -1, 0, 7, 2**31 - 1)}),
    "big": (pa.int64(), {str(n): n for n in (-(2**63), 0, 2**53, 2**53 + 1, 2**63 - 1)}),
    "d": (pa.float64(), _FLOATS),
    "f": (pa.float32(), {**_FLOATS, "0.1::float": _TENTH}),
    "price": (pa.decimal128(9, 2), {t: Decimal(t) for t in ("1.1", "0.00", "-2.05", "1234567.89")}),
    "huge": (
        pa.decimal128(38, 4),
        {t: Decimal(t) for t in ("0.0001", "-1.5", f"{2**70}.0001", "9" * 34 + ".9999")},
    ),
    "day": (
        pa.date32(),
        {f"date '{d}'": d for d in (date(2026, 5, 1), date(1500, 1, 1), date(9999, 12, 31))},
    ),
    "seen": (
        pa.timestamp("us", "UTC"),
        {
            "'2026-05-01 12:00:00'": _NOON,
            "'2026-05-01T14:00:00.000001+02:00'": _NOON.replace(microsecond=1),
            "timestamptz '1901-02-03 04:05:06.789012Z'": _EPOCH_BEFORE_EPOCH,
        },
    ),
    "clock": (
        pa.timestamp("us"),
        {"'2026-05-01 12:00:00'": _LOCAL, "timestamp '1901-02-03'": _OLD_DAY},
    ),
    "ok": (pa.bool_(), {"true": True, "false": False}),
    "note": (pa.string(), {f"'{t}'": t for t in ("", "a", "the door", "Tür", "😀")}),
    "raw": (pa.binary(), {"''::blob": b"", r"'\x00\xff'::blob": b"\x00\xff"}),
}
NESTED = pa.schema(
    [
        ("s", pa.struct([("x", pa.int32()), ("y", pa.struct([("z", pa.float64())]))])),
        ("l", pa.list_(pa.field("element", pa.decimal128(9, 2)))),
        ("m", pa.map_(pa.string(), pa.timestamp("us", "UTC"))),
    ]
)
NESTED_ROWS: list[dict[str, Any]] = [
    {"s": None, "l": None, "m": None},
    {"s": {"x": None, "y": None}, "l": [], "m": []},
    {"s": {"x": 7, "y": {"z": math.nan}}, "l": [Decimal("1.10"), None], "m": [("k", _NOON)]},
    {"s": {"x": 0, "y": {"z": -0.0}}, "l": [None], "m": [("", None), ("a", _EPOCH_BEFORE_EPOCH)]},
]
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("region", pa.string()),
        *((name, kind) for name, (kind, _) in VALUES.items()),
        *NESTED,
    ]
)


def make_rows() -> list[Row]:
    """Combine the values of the columns, so that each pair of columns has many pairs of values."""
    made: list[Row] = []
    for number in range(48):
        row: dict[str, Any] = {"id": number, "region": f"r{number % 3}"}
        for step, (name, (_, known)) in enumerate(VALUES.items(), 1):
            values = [None, *known.values()]
            row[name] = values[(number * step + number // 7) % len(values)]
        made.append(row | NESTED_ROWS[number % len(NESTED_ROWS)])
    return made


ROWS = make_rows()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table with base files, logs and column statistics."""
    folder = tmp_path_factory.mktemp("sql")
    table = lakemark.create(
        folder / "rows", schema=SCHEMA, record_key="id", partition_by="region", buckets=3
    )
    older = [{**row, "note": "older", "n": 1} for row in ROWS[:12]]
    table.upsert(pa.Table.from_pylist([*older, *ROWS[12:40]], SCHEMA))
    table.upsert(pa.Table.from_pylist([*ROWS[:12], *ROWS[40:]], SCHEMA))
    return str(folder / "rows")


def exact(value: Any) -> Any:
    """Return a value that is equal only to the same value: NaN to NaN, and -0.0 not to 0.0."""
    if isinstance(value, float):
        return struct.pack(">d", math.nan if math.isnan(value) else value)
    if isinstance(value, dict):
        return {name: exact(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [exact(one) for one in value]
    return value


def test_values_of_all_types_are_exact(path: str) -> None:
    found = query(f"select * from '{path}' order by id").read_all()
    assert found.schema.names == SCHEMA.names
    assert [str(kind) for kind in found.schema.types] == [
        str(kind).replace("element:", "l:") for kind in SCHEMA.types
    ]
    assert exact(found.to_pylist()) == exact(ROWS)


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_values_of_all_types_are_written_to_files_as_query_writes_them(
    path: str, suffix: str, tmp_path: Path
) -> None:
    from streamer.cli import main

    names = ", ".join(SCHEMA.names)
    given = tmp_path / f"query{suffix}"
    assert main(["query", path, "--where", "id = 2", "--out", str(given)]) == 0
    made = tmp_path / f"sql{suffix}"
    assert main(["sql", f"select {names} from '{path}' where id = 2", "--out", str(made)]) == 0
    if suffix == ".jsonl":
        assert made.read_text() == given.read_text()
    else:
        import pyarrow.parquet as pq

        assert exact(pq.read_table(made).to_pylist()) == exact(pq.read_table(given).to_pylist())


def rank(value: Any) -> Any:
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return value.encode() if isinstance(value, str) else value


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda one, other: bool(one == other),
    "<>": lambda one, other: bool(one != other),
    "<": lambda one, other: bool(one < other),
    "<=": lambda one, other: bool(one <= other),
    ">": lambda one, other: bool(one > other),
    ">=": lambda one, other: bool(one >= other),
}


def comparisons(column: str) -> st.SearchStrategy[Modelled]:
    known = VALUES[column][1]

    def build(comparison: str, literal: str) -> Modelled:
        compare, other = COMPARISONS[comparison], rank(known[literal])

        def model(row: Row) -> bool | None:
            return None if row[column] is None else compare(rank(row[column]), other)

        return f"{column} {comparison} {literal}", model

    return st.builds(build, st.sampled_from([*COMPARISONS]), st.sampled_from([*known]))


def memberships(column: str) -> st.SearchStrategy[Modelled]:
    known = VALUES[column][1]

    def build(literals: list[str]) -> Modelled:
        wanted = {rank(known[literal]) for literal in literals}

        def model(row: Row) -> bool | None:
            return None if row[column] is None else rank(row[column]) in wanted

        return f"{column} in ({', '.join(literals)})", model

    return st.lists(st.sampled_from([*known]), min_size=1, max_size=4).map(build)


OTHERS: list[Modelled] = [
    ("note like '%o%'", lambda row: None if row["note"] is None else "o" in row["note"]),
    ("note like 't%'", lambda row: None if row["note"] is None else row["note"][:1] == "t"),
    ("region in ('r1', 'r2')", lambda row: row["region"] != "r0"),
    ("region = 'r1'", lambda row: row["region"] == "r1"),
    ("id between 10 and 20", lambda row: 10 <= row["id"] <= 20),
    ("s.x = 7", lambda row: None if not row["s"] or row["s"]["x"] is None else row["s"]["x"] == 7),
    ("s.y.z is null", lambda row: not row["s"] or not row["s"]["y"]),
    ("n::bigint + 1 > 5", lambda row: None if row["n"] is None else row["n"] > 4),
    *((f"{name} is null", lambda row, name=name: row[name] is None) for name in (*VALUES, "l")),
]


def negated(one: Modelled) -> Modelled:
    def model(row: Row) -> bool | None:
        known = one[1](row)
        return None if known is None else not known

    return f"not ({one[0]})", model


def combined(one: Modelled, word: str, other: Modelled) -> Modelled:
    def model(row: Row) -> bool | None:
        known = {one[1](row), other[1](row)}
        decisive = word == "or"
        return decisive if decisive in known else None if None in known else not decisive

    return f"({one[0]}) {word} ({other[0]})", model


simple = st.one_of(
    st.sampled_from([*VALUES]).flatmap(lambda name: comparisons(name) | memberships(name)),
    st.sampled_from(OTHERS),
)
conditions = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.builds(combined, inner, st.sampled_from(["and", "or"]), inner), inner.map(negated)
    ),
    max_leaves=5,
)


@given(conditions)
@settings(max_examples=examples(150), deadline=None)
def test_condition_selects_the_rows_of_the_model(path: str, condition: Modelled) -> None:
    text, model = condition
    found = query(f"select id from '{path}' where {text} order by id").read_all()
    assert found["id"].to_pylist() == [row["id"] for row in ROWS if model(row) is True]


@given(conditions, st.sampled_from(["region", "ok", "n"]))
@settings(max_examples=examples(30), deadline=None)
def test_groups_are_those_of_the_model(path: str, condition: Modelled, column: str) -> None:
    text, model = condition
    groups: dict[Any, list[Row]] = defaultdict(list)
    for row in ROWS:
        if model(row) is True:
            groups[row[column]].append(row)
    found = query(
        f"select {column}, count(*), count(d), sum(n), max(d), min(price), sum(huge / 4) is null "
        f"from '{path}' where {text} group by 1"
    ).read_all()
    listed = {key: values for key, *values in zip(*found.to_pydict().values(), strict=True)}
    assert ranked(listed) == ranked({key: summary(rows) for key, rows in groups.items()})


def ranked(groups: Mapping[Any, list[Any]]) -> dict[Any, list[Any]]:
    """Return values that are equal if DuckDB considers them equal."""
    return {key: [*map(rank, values)] for key, values in groups.items()}


def summary(rows: list[Row]) -> list[Any]:
    known = {n: [row[n] for row in rows if row[n] is not None] for n in ("d", "n", "price", "huge")}
    return [
        len(rows),
        len(known["d"]),
        sum(known["n"]) if known["n"] else None,
        max(known["d"], key=rank, default=None),
        min(known["price"], default=None),
        not known["huge"],
    ]
