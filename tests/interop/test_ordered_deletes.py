"""Apache Hudi and lakemark agree on which deletes win, for each type of ordering value.

Every row is written with the middle ordering value. Then each row except ``untouched`` gets one
delete: ``late`` an older one, ``equal`` one of the same value, ``newer`` a newer one, ``zero`` one
with the type's zero, ``unconditional`` one without any ordering value. The row ``early`` is deleted
with the newer value before it arrives with the middle value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from lakemark.model.changes import ChangeKind
from tests.interop import lakemark
from tests.interop.lakemark import LakemarkWriter
from tests.interop.oracle import ApacheTable, Oracle, OracleError

pytestmark = pytest.mark.oracle

FLAG = "_hoodie_is_deleted"
KEYS = ("late", "equal", "newer", "zero", "unconditional", "untouched")


@dataclass(frozen=True)
class Ordering:
    """A type of ordering value, with an older, a middle and a newer one, and its zero.

    Attributes:
        survives_zero: whether a row survives a delete of the value ``zero``. It does not if that
            value is stored as a 32-bit integer 0, which is how Hudi writes "no ordering value". A
            64-bit 0 is of another class, and is compared like any other value.
    """

    kind: pa.DataType
    older: object
    middle: object
    newer: object
    zero: object
    survives_zero: bool

    @property
    def survivors(self) -> set[str]:
        return {"late", "untouched"} | ({"zero"} if self.survives_zero else set())


DATE = Ordering(
    pa.date32(),
    date(2026, 1, 1),
    date(2026, 1, 2),
    date(2026, 1, 3),
    date(1970, 1, 1),
    survives_zero=False,
)

ORDERINGS = [
    Ordering(pa.int32(), 10, 20, 30, 0, survives_zero=False),
    Ordering(pa.int64(), 10, 20, 30, 0, survives_zero=True),
    Ordering(pa.float32(), 1.5, 2.5, 3.5, 0.0, survives_zero=True),
    Ordering(pa.float64(), 1.5, 2.5, 3.5, 0.0, survives_zero=True),
    Ordering(pa.string(), "b", "c", "d", "", survives_zero=True),
    Ordering(
        pa.timestamp("us", "UTC"),
        datetime(2026, 1, 1, tzinfo=UTC),
        datetime(2026, 1, 2, tzinfo=UTC),
        datetime(2026, 1, 3, tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=UTC),
        survives_zero=True,
    ),
    Ordering(
        pa.decimal128(12, 2),
        Decimal("1.00"),
        Decimal("2.00"),
        Decimal("3.00"),
        Decimal("0.00"),
        survives_zero=True,
    ),
]

INT, LONG, *_, TEXT, MOMENT, DECIMAL = ORDERINGS


def each_case(cases: Iterable[tuple[int, Ordering]]) -> pytest.MarkDecorator:
    """List a table version and a type of ordering value for each case."""
    params = [pytest.param(version, o, id=f"{version}-{o.kind}") for version, o in cases]
    return pytest.mark.parametrize(("version", "ordering"), params)


def _table(name: str, version: int = 9) -> ApacheTable:
    return ApacheTable(name, ["id"], ordering=["at"], version=version, bucket_count=1)


def _schema(ordering: Ordering) -> pa.Schema:
    return pa.schema([("id", pa.string()), ("at", ordering.kind), (FLAG, pa.bool_())])


def _rows(ordering: Ordering, values: dict[str, object], *, is_deleted: bool) -> pa.Table:
    columns = [list(values), list(values.values()), [is_deleted] * len(values)]
    return pa.table(columns, schema=_schema(ordering))


def _deletes(ordering: Ordering) -> dict[str, object]:
    return {
        "late": ordering.older,
        "equal": ordering.middle,
        "newer": ordering.newer,
        "zero": ordering.zero,
    }


def _ids(rows: pa.Table) -> set[str]:
    return set(rows["id"].to_pylist())


@each_case([*((9, ordering) for ordering in ORDERINGS), (6, LONG)])
def test_apache_compares_the_ordering_value_of_a_delete(
    oracle: Oracle, tmp_path: Path, version: int, ordering: Ordering
) -> None:
    path, table = tmp_path / "t", _table("deletes", version)
    rows = _rows(ordering, dict.fromkeys(KEYS, ordering.middle), is_deleted=False)
    oracle.write(path, rows, table, "insert")
    oracle.write(path, _rows(ordering, _deletes(ordering), is_deleted=True), table)
    unconditional = _rows(ordering, {"unconditional": ordering.middle}, is_deleted=False)
    oracle.write(path, unconditional, table, "delete")

    assert _ids(oracle.read(path)) == ordering.survivors
    assert _ids(lakemark.read_snapshot(path)) == ordering.survivors
    oracle.compact(path)
    assert _ids(oracle.read(path)) == ordering.survivors


def test_apache_cannot_write_a_delete_ordered_by_a_date(oracle: Oracle, tmp_path: Path) -> None:
    path, table = tmp_path / "t", _table("dates")
    oracle.write(path, _rows(DATE, {"newer": DATE.middle}, is_deleted=False), table, "insert")
    with pytest.raises(OracleError, match="Not in union"):
        oracle.write(path, _rows(DATE, {"newer": DATE.newer}, is_deleted=True), table)


@each_case(
    [
        *((9, ordering) for ordering in (*ORDERINGS, DATE)),
        (8, LONG),
        *((6, ordering) for ordering in (INT, LONG, TEXT, MOMENT, DECIMAL)),
    ]
)
def test_apache_and_lakemark_apply_the_same_deletes_of_lakemark(
    oracle: Oracle, tmp_path: Path, version: int, ordering: Ordering
) -> None:
    path, table = tmp_path / "t", _table("deletes", version)
    writer = LakemarkWriter.open(path, table, _schema(ordering))
    rows = _rows(ordering, dict.fromkeys(KEYS, ordering.middle), is_deleted=False)
    writer.upsert(rows)
    writer.delete(_rows(ordering, _deletes(ordering), is_deleted=True))
    unconditional = _rows(ordering, {"unconditional": ordering.middle}, is_deleted=True)
    writer.delete(unconditional, ChangeKind.COMMIT_TIME_DELETE)

    assert _ids(oracle.read(path)) == ordering.survivors
    assert _ids(lakemark.read_snapshot(path)) == ordering.survivors
    oracle.compact(path)
    assert _ids(oracle.read(path)) == ordering.survivors


@each_case([*((9, ordering) for ordering in (*ORDERINGS, DATE)), (6, LONG)])
def test_early_delete_is_effective_until_a_compaction_drops_it(
    oracle: Oracle, tmp_path: Path, version: int, ordering: Ordering
) -> None:
    path, table = tmp_path / "t", _table("early", version)
    writer = LakemarkWriter.open(path, table, _schema(ordering))
    writer.upsert(_rows(ordering, {"other": ordering.older}, is_deleted=False))
    writer.delete(_rows(ordering, {"early": ordering.newer}, is_deleted=True))
    writer.upsert(_rows(ordering, {"early": ordering.middle}, is_deleted=False))
    assert _ids(oracle.read(path)) == _ids(lakemark.read_snapshot(path)) == {"other"}

    oracle.compact(path)
    assert _ids(oracle.read(path)) == {"other"}
    writer.upsert(_rows(ordering, {"early": ordering.middle}, is_deleted=False))
    assert _ids(oracle.read(path)) == _ids(lakemark.read_snapshot(path)) == {"other", "early"}
