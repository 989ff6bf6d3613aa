"""Plans what a catalog must change so that it stores what it should; without any request."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from lakemark.catalogs.catalog import (
    CatalogColumn,
    CatalogPartition,
    CatalogRefused,
    CatalogTable,
)
from lakemark.catalogs.table_definition import INPUT_FORMATS

#: Schemes under which Hadoop's clients and those of Amazon find the same bucket.
_S3 = frozenset({"s3", "s3a", "s3n"})


@dataclass(frozen=True, slots=True)
class PartitionChanges:
    """The partitions of one table that a catalog must change.

    Attributes:
        added: partitions that the catalog lacks.
        moved: partitions whose location in the catalog is wrong, with the right location.
        dropped: partitions without rows that the catalog has.
    """

    added: tuple[CatalogPartition, ...] = ()
    moved: tuple[CatalogPartition, ...] = ()
    dropped: tuple[CatalogPartition, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.moved or self.dropped)


@dataclass(frozen=True, slots=True)
class TableChanges:
    """What a catalog must change about one table.

    Attributes:
        table: the table as the catalog should store it, with the time of the newest commit.
        is_new: whether the catalog lacks the table.
        details: a text for each difference of a table that the catalog has.
        partitions: the partitions to change.
        records_commit: whether the catalog must record a newer commit.
    """

    table: CatalogTable
    is_new: bool
    details: tuple[str, ...]
    partitions: PartitionChanges
    records_commit: bool

    def __bool__(self) -> bool:
        return bool(self.is_new or self.details or self.partitions or self.records_commit)

    def describe(self) -> Iterator[str]:
        """Yield a text for each change, without the time of the newest commit."""
        if self.is_new:
            columns = len(self.table.columns) + len(self.table.partition_columns)
            yield f"create the table with {columns} columns"
        yield from self.details
        for verb, some in (
            ("add", self.partitions.added),
            ("move", self.partitions.moved),
            ("drop", self.partitions.dropped),
        ):
            if some:
                yield f"{verb} {len(some)} partition{'s' if len(some) > 1 else ''}"


def check_registered(wanted: CatalogTable, registered: CatalogTable, catalog: str) -> None:
    """Check that a registered table may be changed.

    Args:
        wanted: the table as the catalog should store it.
        registered: the table as the catalog stores it.
        catalog: the name of the catalog, for the error.

    Raises:
        CatalogRefused: it is another table, or its partition columns differ, which no catalog can
            change.
    """
    check_location(wanted.location, registered, catalog)
    named = f"table {wanted.name} of {catalog}"
    if registered.input_format not in INPUT_FORMATS and not _is_of_spark(registered):
        message = (
            f"{named} is not a table of Apache Hudi (its input format is "
            f"{registered.input_format}); choose another name, or drop the table in the catalog"
        )
        raise CatalogRefused(message)
    wanted_names = [one.name for one in wanted.partition_columns]
    names = [one.name.lower() for one in registered.partition_columns]
    if names != wanted_names:
        message = (
            f"{named} has the partition columns {', '.join(names) or 'none'} in the catalog, but "
            f"the table has {', '.join(wanted_names) or 'none'}; drop the table in the catalog, "
            "which keeps the files, and repeat the sync"
        )
        raise CatalogRefused(message)


def check_location(location: str, registered: CatalogTable, catalog: str) -> None:
    """Check that a registered table has the files of a table, by its location.

    Args:
        location: the URL of the table.
        registered: the table as the catalog stores it.
        catalog: the name of the catalog, for the error.

    Raises:
        CatalogRefused: it is another table.
    """
    if not _same_location(location, registered.location):
        message = (
            f"table {registered.name} of {catalog} is at {registered.location}, but this table is "
            f"at {location}; choose another name, or drop the table in the catalog if it is no "
            "longer needed"
        )
        raise CatalogRefused(message)


def plan_table(
    wanted: CatalogTable,
    registered: CatalogTable | None,
    partitions: PartitionChanges,
    newest_commit: Mapping[str, str],
) -> TableChanges:
    """Plan the changes of one table.

    Args:
        wanted: the table as the catalog should store it.
        registered: the table as the catalog stores it; None if it lacks the table.
        partitions: the partitions to change.
        newest_commit: the parameters that record the newest commit.
    """
    known = {} if registered is None else registered.parameters
    complete = replace(wanted, parameters={**wanted.parameters, **newest_commit})
    details = () if registered is None else tuple(_differences(wanted, registered))
    records = any(known.get(name) != text for name, text in newest_commit.items())
    return TableChanges(complete, registered is None, details, partitions, records)


def plan_partitions(
    stored: Collection[CatalogPartition],
    gone: Collection[tuple[str, ...]],
    registered: Collection[CatalogPartition],
    *,
    are_all: bool,
) -> PartitionChanges:
    """Plan the changes of partitions.

    Args:
        stored: partitions that have rows.
        gone: the values of partitions without rows.
        registered: the partitions that the catalog has, at least those of the other arguments.
        are_all: whether each registered partition that is not stored is gone.
    """
    known = {one.values: one for one in registered}
    values = {one.values for one in stored}
    found = [(one, known.get(one.values)) for one in sorted(stored, key=lambda one: one.values)]
    return PartitionChanges(
        added=tuple(one for one, other in found if other is None),
        moved=tuple(
            one
            for one, other in found
            if other and not _same_location(one.location, other.location)
        ),
        dropped=tuple(
            one
            for one in sorted(registered, key=lambda one: one.values)
            if one.values not in values and (are_all or one.values in gone)
        ),
    )


def _differences(wanted: CatalogTable, registered: CatalogTable) -> Iterator[str]:
    yield from _column_differences(wanted.columns, registered.columns)
    for what, new, old in (
        ("input format", wanted.input_format, registered.input_format),
        ("output format", wanted.output_format, registered.output_format),
        ("serde", wanted.serde, registered.serde),
    ):
        if new != old:
            yield f"change the {what} to {new}"
    for what, texts, others in (
        ("serde property", wanted.serde_properties, registered.serde_properties),
        ("parameter", wanted.parameters, registered.parameters),
    ):
        for name in sorted(texts):
            if others.get(name) != texts[name]:
                yield f"set the {what} {name}"


def _column_differences(
    wanted: Collection[CatalogColumn], registered: Collection[CatalogColumn]
) -> Iterator[str]:
    known = {one.name.lower(): one.type for one in registered}
    names = {one.name for one in wanted}
    for column in wanted:
        old = known.get(column.name)
        if old is None:
            yield f"add the column {column.name} {column.type}"
        elif _plain(old) != _plain(column.type):
            yield f"change {column.name} from {old} to {column.type}"
    for name in known:
        if name not in names:
            yield f"drop the column {name}"
    if known.keys() == names and [*known] != [one.name for one in wanted]:
        yield "reorder the columns"


def _plain(kind: str) -> str:
    """Return the text of a type without the blanks and capitals that other tools write."""
    return "".join(kind.split()).lower()


def _is_of_spark(table: CatalogTable) -> bool:
    return table.parameters.get("spark.sql.sources.provider", "").lower() == "hudi"


def _same_location(one: str, other: str) -> bool:
    return _comparable(one) == _comparable(other)


def _comparable(location: str) -> tuple[str, str, str]:
    """Return a location without the differences in which engines write it.

    It is not decoded, because a path may contain any character, such as ``?`` and ``%``.
    """
    scheme, colon, path = location.partition(":")
    if not colon or "/" in scheme:
        scheme, path = "file", location
    host = ""
    if path.startswith("//"):
        host, _, path = path[2:].partition("/")
    return "s3" if scheme in _S3 else scheme, host, path.strip("/")
