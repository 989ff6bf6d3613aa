"""Registers a table in a catalog, and repeats this after later commits.

A sync changes only what differs. It begins with the table, continues with its partitions, and
finally records the newest commit. So a sync that fails is completed by the next one. It reads the
table and never changes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from lakemark.catalogs.catalog import (
    Catalog,
    CatalogPartition,
    CatalogRefused,
    CatalogTable,
)
from lakemark.catalogs.changed_partitions import ChangedPartitions, find_changed, newest_commit
from lakemark.catalogs.partition_values import PartitionValues
from lakemark.catalogs.sync_plan import (
    PartitionChanges,
    TableChanges,
    check_location,
    check_registered,
    plan_partitions,
    plan_table,
)
from lakemark.catalogs.table_definition import (
    LAST_COMMIT,
    LAST_COMPLETION,
    Registration,
    define_tables,
    table_names,
)
from lakemark.operations.open_table import OpenTable

#: How often a sync that removes something is planned while other commits complete.
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class SyncPlan:
    """What a catalog must change.

    Attributes:
        creates_database: whether the database must be created.
        tables: the changes of each table; a merge-on-read table may have three names.
    """

    creates_database: bool
    tables: tuple[TableChanges, ...]

    def __bool__(self) -> bool:
        return self.creates_database or any(self.tables)

    @property
    def replaces_something(self) -> bool:
        """Whether what another writer has just registered might be lost."""
        return any(one.details or one.partitions.dropped for one in self.tables)

    def without_drops(self) -> SyncPlan:
        """Return the plan without dropped partitions, so that a later sync still drops them."""
        return replace(self, tables=tuple(map(_without_drops, self.tables)))


def plan_sync(
    table: OpenTable, catalog: Catalog, registration: Registration, *, compares_all: bool = False
) -> SyncPlan:
    """Compare a table with a catalog.

    The table is as of its cached timeline. But another pipeline may have committed and synced after
    this timeline was loaded, and its partitions must not be dropped. So if something would be
    dropped or replaced, the timeline is loaded again, and the sync is planned again if a commit has
    completed. If commits do not cease, partitions are not dropped.

    Args:
        table: the table.
        catalog: the catalog.
        registration: how the table is registered.
        compares_all: whether all partitions are compared. Otherwise those that commits have changed
            since the last sync are compared, if they are certain.

    Raises:
        CatalogUnavailable: the catalog does not answer.
        CatalogRefused: the catalog cannot have the table, or has another table of this name.
        HudiError: the table cannot be read.
    """
    for _ in range(_ATTEMPTS):
        newest = table.timeline.completed()[-1:]
        plan = _compare(table, catalog, registration, compares_all=compares_all)
        if not plan.replaces_something:
            return plan
        table.refresh()
        if table.timeline.completed()[-1:] == newest:
            return plan
    return plan.without_drops()


def _compare(
    table: OpenTable, catalog: Catalog, registration: Registration, *, compares_all: bool
) -> SyncPlan:
    """Compare the table, as of its cached timeline, with a catalog."""
    schema = table.schema
    if schema is None:  # it has no commit yet
        return SyncPlan(creates_database=False, tables=())
    values = PartitionValues.of(table.properties)
    is_merge_on_read = table.properties.is_merge_on_read
    wanted = define_tables(registration, schema, values, is_merge_on_read=is_merge_on_read)
    has_database = _find_database(catalog, registration)
    compared = _Comparison(table, catalog, registration, values, compares_all)
    return SyncPlan(
        not has_database,
        tuple(compared.plan(one, exists=has_database) for one in wanted),
    )


def check_new_table(
    catalog: Catalog, registration: Registration, *, is_merge_on_read: bool
) -> bool:
    """Check that a catalog can have a table that does not exist yet; return if it has the database.

    Raises:
        CatalogUnavailable: the catalog does not answer.
        CatalogRefused: it has another table of this name, or must not create its database.
    """
    has_database = _find_database(catalog, registration)
    if has_database:
        for name in table_names(registration, is_merge_on_read=is_merge_on_read):
            registered = catalog.find_table(name)
            if registered is not None:
                check_location(registration.location, registered, catalog.name)
    return has_database


def _find_database(catalog: Catalog, registration: Registration) -> bool:
    """Return whether the catalog has its database.

    Raises:
        CatalogUnavailable: the catalog does not answer.
        CatalogRefused: it has not, and must not create the database.
    """
    if catalog.has_database():
        return True
    if not registration.creates_database:
        message = f"{catalog.name} does not exist; create the database in the catalog"
        raise CatalogRefused(message)
    return False


def execute_sync(catalog: Catalog, plan: SyncPlan) -> None:
    """Change the catalog.

    Raises:
        CatalogUnavailable, CatalogRefused: as for ``plan_sync``. The next sync completes the rest.
    """
    if plan.creates_database:
        catalog.create_database()
    for changes in plan.tables:
        if changes:
            _execute(catalog, changes)


def _execute(catalog: Catalog, changes: TableChanges) -> None:
    table, partitions = changes.table, changes.partitions
    if partitions and (changes.is_new or changes.details):
        _write(catalog, changes, _without_commit(table))
    if partitions.added:
        catalog.add_partitions(table, partitions.added)
    if partitions.moved:
        catalog.move_partitions(table, partitions.moved)
    if partitions.dropped:
        catalog.drop_partitions(table, partitions.dropped)
    if partitions and changes.is_new:
        catalog.alter_table(table)
    else:
        _write(catalog, changes, table)


def _write(catalog: Catalog, changes: TableChanges, table: CatalogTable) -> None:
    if changes.is_new:
        catalog.create_table(table)
    else:
        catalog.alter_table(table)


def _without_commit(table: CatalogTable) -> CatalogTable:
    """Return the table without the newest commit, whose partitions the catalog does not have."""
    recorded = (LAST_COMMIT, LAST_COMPLETION)
    kept = {name: text for name, text in table.parameters.items() if name not in recorded}
    return replace(table, parameters=kept)


def _without_drops(changes: TableChanges) -> TableChanges:
    """Return changes without dropped partitions; the newest commit is not recorded then."""
    if not changes.partitions.dropped:
        return changes
    return replace(
        changes,
        table=_without_commit(changes.table),
        partitions=replace(changes.partitions, dropped=()),
        records_commit=False,
    )


class _Comparison:
    """Compares the table with each of its names in a catalog."""

    def __init__(
        self,
        table: OpenTable,
        catalog: Catalog,
        registration: Registration,
        values: PartitionValues,
        compares_all: bool,
    ) -> None:
        self._table, self._catalog, self._values = table, catalog, values
        self._registration, self._compares_all = registration, compares_all
        self._changed: dict[tuple[str, ...], ChangedPartitions] = {}

    def plan(self, wanted: CatalogTable, *, exists: bool) -> TableChanges:
        """Plan the changes of one name; ``exists``: whether the catalog has the database."""
        registered = self._catalog.find_table(wanted.name) if exists else None
        if registered is not None:
            check_registered(wanted, registered, self._catalog.name)
        changes = PartitionChanges()
        if wanted.partition_columns:
            changes = self._compare(wanted, registered)
        return plan_table(wanted, registered, changes, newest_commit(self._table.timeline))

    def _compare(self, wanted: CatalogTable, registered: CatalogTable | None) -> PartitionChanges:
        changed = self._find_changed(registered)
        stored = list(self._partitions(changed.stored))
        gone = [self._values.of_path(path) for path in changed.gone]
        known: Sequence[CatalogPartition] = ()
        if registered is not None and changed.are_all:
            known = self._catalog.list_partitions(wanted.name)
        elif registered is not None and (stored or gone):
            named = sorted({*(one.values for one in stored), *gone})
            known = self._catalog.find_partitions(wanted, named)
        return plan_partitions(stored, gone, known, are_all=changed.are_all)

    def _find_changed(self, registered: CatalogTable | None) -> ChangedPartitions:
        """Return the partitions to compare; all names usually have the same, read only once."""
        usable = registered is not None and not self._compares_all
        parameters = registered.parameters if registered is not None and usable else None
        recorded = (LAST_COMMIT, LAST_COMPLETION)
        key = () if parameters is None else tuple(parameters.get(one, "") for one in recorded)
        if key not in self._changed:
            self._changed[key] = find_changed(self._table, parameters)
        return self._changed[key]

    def _partitions(self, paths: Iterable[str]) -> Iterator[CatalogPartition]:
        root = self._registration.location.rstrip("/")
        for path in paths:
            yield CatalogPartition(self._values.of_path(path), f"{root}/{path}")
