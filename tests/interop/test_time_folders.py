"""lakemark and Apache Hudi write in turn to tables that are partitioned by a part of a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakemark
from lakemark.config.table_properties import PROPERTIES_PATH, TableProperties
from tests.interop.oracle import ApacheTable, Oracle
from tests.interop.same_rows import assert_same_rows

pytestmark = pytest.mark.oracle

_TIMESTAMP = "org.apache.hudi.keygen.TimestampBasedKeyGenerator"
_CUSTOM = "org.apache.hudi.keygen.CustomKeyGenerator"

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("region", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("ts", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class Case:
    """A table that is partitioned by times.

    Attributes:
        columns: the partition columns.
        options: how Apache Hudi's writers format the times.
        hive_style: whether folders are named ``field=value``.
    """

    columns: list[str]
    options: Mapping[str, str]
    hive_style: bool = False

    def twin(self, key_generator: str, fields: Sequence[str]) -> ApacheTable:
        """Return the table as Apache Hudi's writers see it."""
        options = {
            "hoodie.datasource.write.keygenerator.class": key_generator,
            "hoodie.datasource.write.hive_style_partitioning": str(self.hive_style).lower(),
            **{f"hoodie.keygen.timebased.{name}": value for name, value in self.options.items()},
        }
        return ApacheTable("t", ["id"], fields, ["ts"], extra=options)


BY_DAY = {
    "timestamp.type": "EPOCHMICROSECONDS",
    "output.dateformat": "yyyy-MM-dd",
    "timezone": "UTC",
}
BY_HOUR = BY_DAY | {"output.dateformat": "yyyy-MM-dd-HH", "timezone": "America/New_York"}
BY_MONTH = {
    "timestamp.type": "SCALAR",
    "timestamp.scalar.time.unit": "DAYS",
    "output.dateformat": "yyyy-MM",
    "timezone": "UTC",
}
CASES = {
    "day": Case(["at"], BY_DAY),
    "hour of New York": Case(["at"], BY_HOUR, hive_style=True),
    "nested folders": Case(["at"], BY_DAY | {"output.dateformat": "yyyy/MM/dd"}),
    "month of a date": Case(["day"], BY_MONTH),
}


def _rows(random: Random, ts: int) -> pa.Table:
    """Return rows of thirty keys; each key keeps its partition."""
    keys = random.sample(range(30), 20)
    first = datetime(2026, 3, 7, 22, tzinfo=UTC)  # the clocks of New York change on the next day
    times = [None if n == 3 else first + timedelta(hours=n, microseconds=ts) for n in keys]
    columns = {
        "id": [f"k{n}" for n in keys],
        "region": ["north" if n % 2 else "south" for n in keys],
        "at": times,
        "day": [None if n == 3 else date(1969, 12, 20) + timedelta(days=n) for n in keys],
        "ts": [ts] * len(keys),
    }
    return pa.table(columns, schema=SCHEMA)


def _write_in_turn(
    oracle: Oracle, path: Path, twin: ApacheTable, random: Random
) -> Iterator[pa.Table]:
    """Let both write; yield lakemark's rows after each turn, with each key once, and the newest."""
    newest: dict[str, int] = {}
    for ts in (2, 4, 6):
        ours, theirs = _rows(random, ts), _rows(random, ts + 1)
        lakemark.open(path, buckets=2).upsert(ours)
        oracle.write(path, theirs, twin)
        newest |= dict.fromkeys(ours["id"].to_pylist(), ts)
        newest |= dict.fromkeys(theirs["id"].to_pylist(), ts + 1)
        rows = lakemark.open(path).snapshot().read_all()
        found = dict(zip(rows["id"].to_pylist(), rows["ts"].to_pylist(), strict=True))
        assert len(found) == rows.num_rows, "an update became a second row"
        assert {key: found[key] for key in newest} == newest
        yield rows


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_table_with_time_folders_is_continued(oracle: Oracle, tmp_path: Path, case: Case) -> None:
    path, random = tmp_path / "t", Random(1)
    twin = case.twin(_TIMESTAMP, case.columns)
    oracle.write(path, _rows(random, 1), twin)
    for rows in _write_in_turn(oracle, path, twin, random):
        # Apache Hudi cannot read a timestamp that partitions a table with this key generator.
        values_of_path = {"hoodie.datasource.read.extract.partition.values.from.path": "true"}
        stored = oracle.read(path, options=values_of_path)
        assert_same_rows(rows, stored, ignoring=case.columns)


def test_custom_table_is_continued_once_it_stores_how_times_are_formatted(
    oracle: Oracle, tmp_path: Path
) -> None:
    path, random = tmp_path / "t", Random(2)
    twin = CASES["day"].twin(_CUSTOM, ["region:SIMPLE", "at:TIMESTAMP"])
    oracle.write(path, _rows(random, 1), twin)
    with pytest.raises(lakemark.Unsupported, match=r"timestamp.type is '', .* store them in"):
        lakemark.open(path, buckets=2).upsert(_rows(random, 2))
    stored = path / PROPERTIES_PATH
    options = {f"hoodie.keygen.timebased.{name}": value for name, value in BY_DAY.items()}
    values = TableProperties.parse(stored.read_bytes()).values
    stored.write_bytes(TableProperties({**values, **options}).to_bytes())
    stored.with_name(f".{stored.name}.crc").unlink()  # Hadoop's checksum of the former file
    for rows in _write_in_turn(oracle, path, twin, random):
        assert_same_rows(rows, oracle.read(path))


def test_apache_hudi_misses_rows_of_a_filter_by_the_formatted_column(
    oracle: Oracle, tmp_path: Path
) -> None:
    """This is why a new table cannot be partitioned by a formatted time."""
    path = tmp_path / "t"
    twin = CASES["day"].twin(_CUSTOM, ["region:SIMPLE", "at:TIMESTAMP"])
    oracle.write(path, _rows(Random(3), 1), twin)
    half = datetime(2026, 3, 8, 9, 30, tzinfo=UTC)
    ours = lakemark.open(path).snapshot(["id"], pc.field("at") >= half).read_all()
    with oracle.named("t", path):
        theirs = oracle.query(f"SELECT id FROM t WHERE at >= TIMESTAMP '{half.isoformat()}'")
    assert {*theirs["id"].to_pylist()} < {*ours["id"].to_pylist()}
