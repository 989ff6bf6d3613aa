"""Every combination of index, key generator, table type, table version and creator of a table.

A cell is one combination that both writers support (``Cell.is_supported``).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import pyarrow as pa

import lakemark
from lakemark.operations.table_index import DEFAULT_BUCKETS, IndexKind
from tests.golden.make.options import CONSISTENT_HASHING
from tests.interop.oracle import ApacheTable
from tests.interop.test_lookup_index import RECORD_INDEX

TableTypeName = Literal["MERGE_ON_READ", "COPY_ON_WRITE"]
Creator = Literal["apache", "lakemark"]

SCHEMA: Final = pa.schema(
    [
        ("id", pa.string()),
        ("n", pa.int64()),
        ("region", pa.string()),
        ("half", pa.int32()),
        ("at", pa.timestamp("us", "UTC")),
        ("ts", pa.int64()),
        ("v", pa.int32()),
        ("day", pa.string()),
    ]
)
#: The same in SQL; the partition columns are the last ones.
SQL_COLUMNS: Final = (
    "id STRING, n BIGINT, region STRING, half INT, at TIMESTAMP, ts BIGINT, v INT, day STRING"
)

#: Texts with the characters that record keys, hashes, logs and indexes treat in a special way.
#: ``test_key_order`` has texts that Java sorts otherwise than their bytes.
ODD_IDS: Final = (
    "a,b",
    "a:b",
    "a:1,b",
    "id",
    "null",
    "$",
    "\\",
    "é",
    "\U0001f600",
    "a b ",
    "a/b=c%20",
    "line\nbreak",
    "x" * 700,
    "__null",
    "'\"",
)

#: Midnight in New York, which is also the beginning of folders.
_MIDNIGHT: Final = datetime(1970, 1, 1, 5, tzinfo=UTC)


class Index(NamedTuple):
    """An index of Apache Hudi.

    Attributes:
        options: what Apache Hudi's writers set.
        is_global: whether a key is unique in the whole table, so that rows move.
        has_buckets: whether it is the bucket index.
    """

    options: Mapping[str, str]
    is_global: bool = False
    has_buckets: bool = False


INDEXES: Final[Mapping[str, Index]] = {
    "bucket": Index({"hoodie.index.type": "BUCKET"}, has_buckets=True),
    "consistent": Index(CONSISTENT_HASHING),
    "simple": Index({"hoodie.index.type": "SIMPLE"}),
    "bloom": Index({"hoodie.index.type": "BLOOM"}),
    "global_simple": Index({"hoodie.index.type": "GLOBAL_SIMPLE"}, is_global=True),
    "global_bloom": Index({"hoodie.index.type": "GLOBAL_BLOOM"}, is_global=True),
    "record": Index(
        {
            "hoodie.index.type": "RECORD_INDEX",
            "hoodie.record.index.update.partition.path": "true",
            **RECORD_INDEX,
        },
        is_global=True,
    ),
}


class Keys(NamedTuple):
    """A key generator, and its columns.

    Attributes:
        record, partition: the columns.
        fields: the partition fields as Apache Hudi's writers name them, if they differ.
        generator: the class of Apache Hudi; None if it infers the class from the columns.
        options: further options.
        meta_columns: whether rows store their keys.
        is_created_by_lakemark: whether lakemark creates such tables.
        is_created_by_sql: whether Apache Hudi creates such tables only by SQL.
    """

    record: tuple[str, ...]
    partition: tuple[str, ...]
    fields: tuple[str, ...] = ()
    generator: str | None = None
    options: Mapping[str, str] = {}
    meta_columns: bool = True
    is_created_by_lakemark: bool = True
    is_created_by_sql: bool = False


_BY_DAY: Final = {
    "hoodie.keygen.timebased.timestamp.type": "EPOCHMICROSECONDS",
    "hoodie.keygen.timebased.output.dateformat": "yyyy-MM-dd",
    "hoodie.keygen.timebased.timezone": "America/New_York",
}
#: With ``CUSTOM``, Apache Hudi cannot read such folders.
_IN_NESTED_FOLDERS: Final = {**_BY_DAY, "hoodie.keygen.timebased.output.dateformat": "yyyy/MM/dd"}
_UNCHECKED: Final = {"hoodie.write.complex.keygen.validation.enable": "false"}
_BARE: Final = {**_UNCHECKED, "hoodie.write.complex.keygen.new.encoding": "true"}
_SLASHES: Final = {"hoodie.datasource.write.slash.separated.date.partitioning": "true"}
_VIRTUAL: Final = {"hoodie.populate.meta.fields": "false"}

KEYS: Final[Mapping[str, Keys]] = {
    "simple": Keys(("id",), ("region",)),
    "complex": Keys(("id", "n"), ("region",)),
    "complex_of_one": Keys(
        ("id",), ("region", "half"), generator="ComplexKeyGenerator", options=_UNCHECKED
    ),
    "complex_bare": Keys(
        ("id",),
        ("region",),
        generator="ComplexKeyGenerator",
        options=_BARE,
        is_created_by_lakemark=False,
    ),
    "timestamp": Keys(
        ("id",),
        ("at",),
        generator="TimestampBasedKeyGenerator",
        options=_IN_NESTED_FOLDERS,
        is_created_by_lakemark=False,
    ),
    "custom": Keys(
        ("id", "n"),
        ("region", "at"),
        fields=("region:SIMPLE", "at:TIMESTAMP"),
        generator="CustomKeyGenerator",
        options=_BY_DAY,
        is_created_by_lakemark=False,
    ),
    "slash_dates": Keys(("id",), ("day",), options=_SLASHES, is_created_by_sql=True),
    "non_partitioned": Keys(("id",), ()),
    "virtual": Keys(("id",), ("region",), options=_VIRTUAL, meta_columns=False),
    "virtual_complex": Keys(("id", "n"), ("region",), options=_VIRTUAL, meta_columns=False),
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination.

    Attributes:
        index, keys: names in ``INDEXES`` and ``KEYS``.
        table_type, version: the type and the version of the table.
        creator: which writer creates the table.
    """

    index: str
    keys: str
    table_type: TableTypeName
    version: int
    creator: Creator

    def __str__(self) -> str:
        kind = "mor" if self.table_type == "MERGE_ON_READ" else "cow"
        return f"{self.index}-{self.keys}-{kind}-v{self.version}-{self.creator}"

    @property
    def is_supported(self) -> bool:
        """Whether both writers support the combination."""
        return not any(self._reasons())

    def _reasons(self) -> Iterator[bool]:
        """Yield whether each reason applies against the combination."""
        keys = KEYS[self.keys]
        has_rings = self.index == "consistent"
        # Apache Hudi has no consistent hashing of copy-on-write tables.
        yield has_rings and self.table_type == "COPY_ON_WRITE"
        # Files without meta columns have neither keys for an index nor Bloom filters.
        yield not keys.meta_columns and self.index not in ("bucket", "simple", "global_simple")
        # Version 9 has one encoding of a single key.
        yield self.keys == "complex_bare" and self.version == 9
        # Tables of version 6 do not store the types of the fields of CUSTOM.
        yield self.keys == "custom" and self.version == 6
        yield self.creator == "lakemark" and not keys.is_created_by_lakemark


def _cells() -> Iterator[Cell]:
    types: tuple[TableTypeName, ...] = ("MERGE_ON_READ", "COPY_ON_WRITE")
    creators: tuple[Creator, ...] = ("apache", "lakemark")
    for index, keys, table_type, version, creator in product(
        INDEXES, KEYS, types, (6, 8, 9), creators
    ):
        yield Cell(index, keys, table_type, version, creator)


CELLS: Final = [cell for cell in _cells() if cell.is_supported]


@dataclass(frozen=True)
class CellTable:
    """The table of one cell.

    The name of the cell decides how folders are named, whether there is a metadata table, and
    whether the metadata table has Bloom filters.
    """

    cell: Cell
    path: Path

    @property
    def index(self) -> Index:
        """The index of the table."""
        return INDEXES[self.cell.index]

    @property
    def keys(self) -> Keys:
        """The key generator of the table."""
        return KEYS[self.cell.keys]

    @property
    def is_hive_style(self) -> bool:
        """Whether folders are named ``column=value``."""
        return self._draw("hive style") and not self.has_slash_dates

    @property
    def has_slash_dates(self) -> bool:
        """Whether the folders of a date are ``yyyy/MM/dd``."""
        return self.cell.keys == "slash_dates"

    @property
    def is_encoded(self) -> bool:
        """Whether special characters in the names of folders are encoded."""
        return self._draw("encoding")

    @property
    def has_metadata(self) -> bool:
        """Whether the table has a metadata table."""
        return self._draw("metadata table") or self.cell.index == "record"

    @property
    def has_filters(self) -> bool:
        """Whether the metadata table has Bloom filters."""
        return self.has_metadata and self.keys.meta_columns and self._draw("filters")

    def apache(self) -> ApacheTable:
        """Return the settings of Apache Hudi's writers."""
        generator = self.keys.generator
        named = f"org.apache.hudi.keygen.{generator}"
        style = "hoodie.datasource.write.hive_style_partitioning"
        encoding = self.is_encoded
        filters = {"hoodie.metadata.index.bloom.filter.enable": str(self.has_filters).lower()}
        return ApacheTable(
            "orders",
            self.keys.record,
            self.keys.fields or self.keys.partition,
            ["ts"],
            table_type=self.cell.table_type,
            version=self.cell.version,
            has_metadata=self.has_metadata,
            extra={
                **self.index.options,
                **self.keys.options,
                **(filters if self.has_metadata else {}),
                **(
                    {}
                    if generator is None
                    else {"hoodie.datasource.write.keygenerator.class": named}
                ),
                # SQL refuses both properties of one table, whatever their values are.
                **({} if self.has_slash_dates else {style: str(self.is_hive_style).lower()}),
                "hoodie.datasource.write.partitionpath.urlencode": str(encoding).lower(),
            },
        )

    def _draw(self, name: str) -> bool:
        return random.Random(f"{self.cell} {name}").random() < 0.5

    def create(self) -> None:
        """Create the table with lakemark."""
        kinds = {"bucket": IndexKind.BUCKET, "consistent": IndexKind.CONSISTENT_HASHING}
        kind = kinds.get(self.cell.index, IndexKind.LOOKUP)
        table = lakemark.create(
            self.path,
            schema=SCHEMA,
            record_key=self.keys.record,
            partition_by=self.keys.partition,
            ordering="ts",
            table_type=self.cell.table_type,
            version=self.cell.version,
            meta_columns=self.keys.meta_columns,
            metadata_table=self.has_metadata,
            index=kind,
            buckets=DEFAULT_BUCKETS if kind is IndexKind.LOOKUP else 2,
            hive_style=self.is_hive_style,
            url_encode=self.is_encoded,
            slash_separated_dates=self.has_slash_dates,
        )
        if self.cell.index == "record":
            table.create_index("record_index")
        if self.has_filters:
            table.create_index("bloom_filters")

    def open(self) -> lakemark.Table:
        """Open the table with lakemark, as a new process would."""
        return lakemark.open(
            self.path,
            buckets=2 if self.index.has_buckets else None,
            partition_change="move" if self.index.is_global else None,
        )


Row: TypeAlias = dict[str, Any]


@dataclass
class Model:
    """The row of each number, of which the largest ordering value wins.

    Attributes:
        is_global: whether a row may change its partition.
        regions: the values of the partition column.
        rows: the rows, by their numbers.
    """

    is_global: bool
    regions: tuple[str | None, ...]
    rows: dict[int, Row] = field(default_factory=dict)

    def upserts(self, numbers: Iterable[int], ts: int, shift: int) -> pa.Table:
        """Create rows, and apply them.

        Args:
            numbers: which rows.
            ts: their ordering value.
            shift: how far rows move to other partitions, if they may.
        """
        made = {n: self._row(n, ts, shift if self.is_global else 0) for n in numbers}
        for number, row in made.items():
            if number not in self.rows or self.rows[number]["ts"] <= ts:
                self.rows[number] = row
        return pa.Table.from_pylist(list(made.values()), SCHEMA)

    def deletes(self, numbers: Iterable[int], ts: int) -> pa.Table:
        """Return rows to delete, and apply the deletion."""
        gone = [self.rows.pop(n) if n in self.rows else self._row(n, ts, 0) for n in numbers]
        return pa.Table.from_pylist([{**row, "ts": ts} for row in gone], SCHEMA)

    def _row(self, number: int, ts: int, shift: int) -> Row:
        place = (number + shift) % len(self.regions)
        return {
            "id": ODD_IDS[number] if number < len(ODD_IDS) else f"k{number:03d}",
            "n": number,
            "region": self.regions[place],
            "half": place % 2,
            "at": _MIDNIGHT + timedelta(days=place - 1, microseconds=-(number % 2)),
            "ts": ts,
            "v": 1000 * ts + number,
            "day": None if self.regions[place] is None else f"2026-01-0{place + 1}",
        }
