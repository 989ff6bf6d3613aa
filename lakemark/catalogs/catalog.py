"""The protocol of a catalog, and what a catalog stores about a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from lakemark.errors import Permanent, Retriable


class CatalogUnavailable(Retriable):
    """The catalog did not answer, or failed. What it has stored is complete after the next sync."""


class CatalogChanged(CatalogUnavailable):
    """Another writer created or dropped the table during the sync; plan the sync again."""

    @classmethod
    def of(cls, table: str, catalog: str, happened: str) -> CatalogChanged:
        """Return the error for a table that was ``created`` or ``dropped``."""
        return cls(f"table {table} of {catalog} was {happened} during the sync; repeat it")


class CatalogRefused(Permanent):
    """The catalog refused a change, or stores something that a sync does not change."""


@dataclass(frozen=True, slots=True)
class CatalogColumn:
    """A column as a catalog stores it.

    Attributes:
        name: the name in lower case, as a Hive metastore stores it.
        type: the type in the language of Hive, such as ``map<string,int>``.
    """

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table as a catalog stores it.

    Attributes:
        name: the name of the table.
        location: the URL of the table's root.
        columns: the columns without the partition columns.
        partition_columns: the partition columns, in the order of the partition path.
        input_format: the Java class with which Hive reads the files.
        output_format: the Java class with which Hive would write files.
        serde: the Java class that decodes rows.
        serde_properties: the properties of the serde. Spark reads the path of the table from them.
        parameters: the parameters of the table. Spark reads the columns from them.
    """

    name: str
    location: str
    columns: tuple[CatalogColumn, ...]
    partition_columns: tuple[CatalogColumn, ...]
    input_format: str
    output_format: str
    serde: str
    serde_properties: Mapping[str, str]
    parameters: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CatalogPartition:
    """A partition as a catalog stores it.

    Attributes:
        values: the values of the partition columns as text.
        location: the URL of the partition's folder.
    """

    values: tuple[str, ...]
    location: str


class Catalog(Protocol):
    """One database of a catalog.

    Every method raises ``CatalogUnavailable`` if the catalog does not answer within about a minute,
    and ``CatalogRefused`` if it refuses the request. A catalog that an installed package provides
    may raise any other error, too. No method may delete files of a table.
    """

    @property
    def name(self) -> str:
        """The name of the catalog and its database, for messages; without secrets."""
        ...

    def has_database(self) -> bool:
        """Return whether the database exists."""
        ...

    def create_database(self) -> None:
        """Create the database; do nothing if it exists."""
        ...

    def find_table(self, table: str) -> CatalogTable | None:
        """Return what the catalog stores about a table; None if it does not know the table."""
        ...

    def create_table(self, table: CatalogTable) -> None:
        """Create an external table, without partitions.

        Raises:
            CatalogChanged: the catalog already has a table of this name, which may be another one.
        """
        ...

    def alter_table(self, table: CatalogTable) -> None:
        """Replace the columns and the formats of a table, also in its partitions.

        Serde properties and parameters are added or replaced. The catalog keeps all others, the
        comments of columns, and the partition columns, whose types a Hive metastore does not
        change.

        Raises:
            CatalogChanged: the catalog lacks the table.
        """
        ...

    def list_partitions(self, table: str) -> list[CatalogPartition]:
        """Return all partitions of a table."""
        ...

    def find_partitions(
        self, table: CatalogTable, values: Sequence[tuple[str, ...]]
    ) -> list[CatalogPartition]:
        """Return those partitions of a table that exist, of the partitions with these values."""
        ...

    def add_partitions(self, table: CatalogTable, partitions: Sequence[CatalogPartition]) -> None:
        """Add partitions; those that exist already are skipped."""
        ...

    def move_partitions(self, table: CatalogTable, partitions: Sequence[CatalogPartition]) -> None:
        """Change the locations of existing partitions."""
        ...

    def drop_partitions(self, table: CatalogTable, partitions: Sequence[CatalogPartition]) -> None:
        """Remove partitions from the catalog, and keep their files; skip those that are missing."""
        ...

    def close(self) -> None:
        """Close the connection. No other method is called afterwards."""
        ...
