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
from tests.interop.test_partitioned_record_index import RECORD_LEVEL_INDEX

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
        ("millis", pa.int64()),
        ("seconds", pa.int64()),
        ("date", pa.date32()),
        ("day", pa.string()),
    ]
)
#: The same in SQL; the partition columns are the last ones.
SQL_COLUMNS: Final = (
    "id STRING, n BIGINT, region STRING, half INT, at TIMESTAMP, ts BIGINT, v INT, "
    "millis BIGINT, seconds BIGINT, date DATE, day STRING"
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
        is_record_index: whether it is in the metadata table.
        kind: the kind that lakemark creates.
    """

    options: Mapping[str, str]
    is_global: bool = False
    is_record_index: bool = False
    kind: IndexKind = IndexKind.LOOKUP


INDEXES: Final[Mapping[str, Index]] = {
    "bucket": Index({"hoodie.index.type": "BUCKET"}, kind=IndexKind.BUCKET),
    "partition_buckets": Index({"hoodie.index.type": "BUCKET"}, kind=IndexKind.BUCKET),
    "consistent": Index(CONSISTENT_HASHING, kind=IndexKind.CONSISTENT_HASHING),
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
        is_record_index=True,
    ),
    "partitioned_record": Index(RECORD_LEVEL_INDEX, is_record_index=True),
}

#: In the index ``partition_buckets``, the partitions that match have three buckets, others two.
BUCKETS_OF_PARTITIONS: Final = "^$|north|12.?31|01.?0[13]|1970,3"


class Keys(NamedTuple):
    """A key generator, and its columns.

    Attributes:
        record, partition: the columns. Without ``record``, each row gets an automatic key, and the
            writers only insert.
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
#: Apache Hudi reads the folder of a number as a number, too.
_BY_HOUR: Final = {
    "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
    "hoodie.keygen.timebased.output.dateformat": "yyyyMMddHH",
    "hoodie.keygen.timebased.timezone": "UTC",
}
_BY_MONTH: Final = {
    "hoodie.keygen.timebased.timestamp.type": "SCALAR",
    "hoodie.keygen.timebased.timestamp.scalar.time.unit": "DAYS",
    "hoodie.keygen.timebased.output.dateformat": "yyyy-MM",
    "hoodie.keygen.timebased.timezone": "UTC",
}
_OF_SECONDS: Final = {
    "hoodie.keygen.timebased.timestamp.type": "UNIX_TIMESTAMP",
    "hoodie.keygen.timebased.output.dateformat": "yyyyMMdd",
    "hoodie.keygen.timebased.timezone": "America/New_York",
}
_UNCHECKED: Final = {"hoodie.write.complex.keygen.validation.enable": "false"}
_BARE: Final = {**_UNCHECKED, "hoodie.write.complex.keygen.new.encoding": "true"}
_SLASHES: Final = {"hoodie.datasource.write.slash.separated.date.partitioning": "true"}
_VIRTUAL: Final = {"hoodie.populate.meta.fields": "false"}

#: Not here: times that are texts (``DATE_STRING``), which lakemark does not write.
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
    "timestamp_millis": Keys(
        ("id",),
        ("millis",),
        generator="TimestampBasedAvroKeyGenerator",
        options=_BY_HOUR,
        is_created_by_lakemark=False,
    ),
    "timestamp_date": Keys(
        ("id",),
        ("date",),
        generator="TimestampBasedKeyGenerator",
        options=_BY_MONTH,
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
    "custom_seconds": Keys(
        ("id",),
        ("seconds",),
        fields=("seconds:TIMESTAMP",),
        generator="CustomAvroKeyGenerator",
        options=_OF_SECONDS,
        is_created_by_lakemark=False,
    ),
    "custom_non_partitioned": Keys(
        ("id",), (), generator="CustomKeyGenerator", is_created_by_lakemark=False
    ),
    "slash_dates": Keys(("id",), ("day",), options=_SLASHES, is_created_by_sql=True),
    "non_partitioned": Keys(("id",), ()),
    "non_partitioned_complex": Keys(("id", "n"), (), generator="NonpartitionedKeyGenerator"),
    "virtual": Keys(("id",), ("region",), options=_VIRTUAL, meta_columns=False),
    "virtual_complex": Keys(("id", "n"), ("region",), options=_VIRTUAL, meta_columns=False),
    "automatic": Keys((), ("region",)),
    "automatic_non_partitioned": Keys((), ()),
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
        # When Apache Hudi changes bucket counts, it writes several such files to one bucket, and
        # its next write fails.
        yield not keys.meta_columns and self.index not in ("bucket", "simple", "global_simple")
        # Where Apache Hudi itself cannot change bucket counts: it fails with "UTF8String cannot be
        # cast to String", and with "Unexpected type for partition field: java.sql.Timestamp".
        fails_alone = ("slash_dates", "timestamp", "custom")
        yield self.index == "partition_buckets" and self.keys in fails_alone
        # Version 9 has one encoding of a single key.
        yield self.keys == "complex_bare" and self.version == 9
        # Tables of version 6 do not store the types of the fields of CUSTOM.
        yield self.keys in ("custom", "custom_seconds") and self.version == 6
        # Buckets are found by the columns of the record key; without any, Apache Hudi fails.
        yield not keys.record and INDEXES[self.index].kind is not IndexKind.LOOKUP
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
    def ordering(self) -> tuple[str, ...]:
        """The ordering columns of the table; rows with automatic keys have no order."""
        return ("ts",) if self.keys.record else ()

    @property
    def reads_folders(self) -> bool:
        """Whether Apache Hudi reads the partition column only from the names of the folders."""
        return self.cell.keys in ("timestamp", "timestamp_date")

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
        return self._draw("metadata table") or self.index.is_record_index

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
            self.ordering,
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
        kind = self.index.kind
        table = lakemark.create(
            self.path,
            schema=SCHEMA,
            record_key=self.keys.record,
            partition_by=self.keys.partition,
            ordering=self.ordering,
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
        if self.index.is_record_index:
            table.create_index("record_index", partitioned=not self.index.is_global)
        if self.has_filters:
            table.create_index("bloom_filters")

    def open(self) -> lakemark.Table:
        """Open the table with lakemark, as a new process would."""
        return lakemark.open(
            self.path,
            buckets=2 if self.cell.index == "bucket" else None,
            partition_change="move" if self.index.is_global and self.keys.record else None,
        )


Row: TypeAlias = dict[str, Any]


@dataclass
class Model:
    """The row of each number, of which the largest ordering value wins.

    If keys are automatic, each row is another one, and the last row of each batch has an equal.

    Attributes:
        has_keys: whether a number is the key of one row.
        is_global: whether a row may change its partition.
        regions: the values of the partition column.
        rows: the rows, by their numbers, or in the order of their insertion.
    """

    has_keys: bool
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
        may_move = self.is_global or not self.has_keys
        made = [self._row(n, ts, shift if may_move else 0) for n in numbers]
        made += [] if self.has_keys else made[-1:]
        for row in made:
            place = row["n"] if self.has_keys else len(self.rows)
            if place not in self.rows or self.rows[place]["ts"] <= ts:
                self.rows[place] = row
        return pa.Table.from_pylist(made, SCHEMA)

    def deletes(self, numbers: Iterable[int], ts: int) -> pa.Table:
        """Return rows to delete, and apply the deletion."""
        gone = [self.rows.pop(n) if n in self.rows else self._row(n, ts, 0) for n in numbers]
        return pa.Table.from_pylist([{**row, "ts": ts} for row in gone], SCHEMA)

    def sorted_rows(self) -> list[Row]:
        """Return all rows in the order of ``sorted_rows``."""
        return sorted_rows(self.rows.values())

    def _row(self, number: int, ts: int, shift: int) -> Row:
        place = (number + shift) % len(self.regions)
        at = _MIDNIGHT + timedelta(days=place - 1, microseconds=-(number % 2))
        seconds = None if self.regions[place] is None else int(at.timestamp())
        return {
            "id": ODD_IDS[number] if number < len(ODD_IDS) else f"k{number:03d}",
            "n": number,
            "region": self.regions[place],
            "half": place % 2,
            "at": at,
            "ts": ts,
            "v": 1000 * ts + number,
            "millis": None if seconds is None else 1000 * seconds - number % 2,
            "seconds": seconds,
            "date": None if seconds is None else at.date(),
            "day": None if self.regions[place] is None else f"2026-01-0{place + 1}",
        }


def sorted_rows(rows: Iterable[Row]) -> list[Row]:
    """Return rows in an order that does not depend on where they are stored."""
    return sorted(rows, key=lambda row: (row["n"], row["ts"], row["at"]))
