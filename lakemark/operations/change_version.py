"""Changes the version of an open table, after all pending instants are completed or undone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow.compute as pc

from lakemark.config import keys
from lakemark.config.key_generators import KeyGeneratorType, find_implemented
from lakemark.config.merge_settings import MYSQL_SEQUENCE, Payload, stored_payload
from lakemark.errors import Refused
from lakemark.execution.runner import Runner
from lakemark.index.stored_rows import detect_key_generator
from lakemark.metadata.expressions.indexed_expression import check_expressions
from lakemark.model.compaction_plan import CompactionOperation, CompactionPlan
from lakemark.model.format_version import FormatVersion
from lakemark.model.meta_columns import PARTITION_PATH
from lakemark.operations.compact import (
    Compaction,
    Planned,
    pending_compactions,
    request_compaction,
)
from lakemark.operations.metadata_table import rebuild_metadata_table
from lakemark.operations.open_table import OpenTable
from lakemark.operations.stored_rows import stored_rows
from lakemark.schema.field_path import top_column
from lakemark.transaction.rollback import recover
from lakemark.upgrade.change import VersionChange, change_version, needs_compaction, plan_change
from lakemark.upgrade.old_keys import (
    check_default_partition,
    has_default_folder,
    missing_key_properties,
)
from lakemark.upgrade.partition_types import typed_partition_fields


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """The steps of a version change.

    Attributes:
        rolled_back: the pending instants of dead writers, which are rolled back.
        compacted: the slices whose logs are merged by compactions.
        change: the change of the table itself. Before it is executed, the change lacks the instants
            that the compactions add to the timeline.
    """

    rolled_back: tuple[str, ...]
    compacted: tuple[CompactionOperation, ...]
    change: VersionChange


def plan_version_change(table: OpenTable, version: FormatVersion) -> PlannedChange:
    """Return the steps that ``change_table_version`` would execute now.

    Raises:
        Refused: in the new version, Apache Hudi would write other record keys, or needs a column
            that the table does not have.
        InvalidConfig: an upgrade from a version before 6 needs the time zone of the timeline.
        HudiError: see ``plan_change``.
    """
    change = plan_change(table.context, version, _derived_properties(table, version))
    if not table.version.is_written:
        table.store.clock.check()
    pending = tuple(i.requested_at for i in table.store.pending_writes(table.timeline))
    is_written = table.version.is_written
    plans = [plan for _, plan in pending_compactions(table)] if is_written else []
    if _merges(table, version):
        # Logs that were written while a compaction was pending must be merged afterwards.
        plans.append(CompactionPlan.of(table.view().slices_for_writing()))
    operations = tuple(one for plan in plans for one in plan.operations)
    return PlannedChange(pending, operations, change)


def change_table_version(
    table: OpenTable, version: FormatVersion, runner: Runner, merger_class: str | None = None
) -> PlannedChange:
    """Roll back dead writers' instants, execute pending compactions, and change the table.

    If the new version would read logs differently, all logs are merged first. If the table has a
    metadata table, the metadata table is rebuilt in the new version.

    In an upgrade from a version before 6, pending compactions remain. Dead writers' instants are
    rolled back after the change, because lakemark writes only from version 6 on.

    Raises:
        WriterAlive: another writer is writing.
        Refused: in the new version, Apache Hudi would write other record keys, or needs a column
            that the table does not have.
        HudiError: see ``change_version``; or a compaction failed.
    """
    derived = _derived_properties(table, version)
    plan_change(table.context, version, derived)
    if not table.version.is_written:
        return _upgrade_to_6(table, version, derived)
    rolled_back = tuple(recover(table.context))
    table.refresh()
    operations: list[CompactionOperation] = []
    for planned in pending_compactions(table):
        operations += _compact(table, planned, runner, merger_class)
    requested = request_compaction(table) if _merges(table, version) else None
    if requested is not None:
        operations += _compact(table, requested, runner, merger_class)
    change = change_version(table.context, version, derived)
    if change.metadata_partitions and not change.is_none:
        rebuild_metadata_table(table.with_properties(change.after))
    return PlannedChange(rolled_back, tuple(operations), change)


def _upgrade_to_6(
    table: OpenTable, version: FormatVersion, derived: Mapping[str, str]
) -> PlannedChange:
    table.store.clock.check()  # fail before the change, because rollbacks follow
    change = change_version(table.context, version, derived)
    upgraded = table.with_properties(change.after)
    rolled_back = tuple(recover(upgraded.context))
    if change.metadata_partitions:
        rebuild_metadata_table(upgraded)
    return PlannedChange(rolled_back, (), change)


def _derived_properties(table: OpenTable, version: FormatVersion) -> Mapping[str, str]:
    """Check keys and columns, and return properties that only the rows of the table show."""
    _check_keys(table, version)
    _check_sequence(table, version)
    if not table.version.is_written:
        return _derived_for_6(table) if version is FormatVersion.V6 else {}
    typed = _typed_fields(table, version)
    return {
        **({keys.PARTITION_FIELDS: ",".join(typed)} if typed else {}),
        **_readable_indexes(table, version),
    }


def _readable_indexes(table: OpenTable, version: FormatVersion) -> Mapping[str, str]:
    """Return the property with the indexes of the next metadata table, if it loses some.

    In version 8, Apache Hudi cannot read some expression indexes of version 9, and its queries
    fail. Its own downgrade drops all expression indexes
    (``UpgradeDowngradeUtils.dropNonV1IndexPartitions``).

    Raises:
        Unsupported: lakemark does not update one of the indexes.
    """
    schema = table.known_schema
    if version is not FormatVersion.V8 or schema is None:
        return {}
    found = table.metadata_writer.expressions(table.properties)
    check_expressions(found, schema, table.location.url)
    lost = {one.partition for one in found if not one.is_readable_in(version, schema)}
    kept = [name for name in table.properties.metadata_indexes if name not in lost]
    return {keys.DROPPED_INDEXES: ",".join(kept)} if lost else {}


def _derived_for_6(table: OpenTable) -> Mapping[str, str]:
    """Return what a table of a version before 6 does not store about its keys and paths.

    Raises:
        Refused: see ``check_default_partition`` and ``missing_key_properties``.
    """
    properties, place = table.properties, table.location.url
    sample = stored_rows(table)
    if sample and table.version < FormatVersion.V5:
        schema = sample[0].rows.schema
        columns = [top_column(name, schema) for name in properties.partition_fields]
        defaults = [path for path in table.view().partitions if has_default_folder(path)]
        rows = (
            (path, table.scan(columns=columns, where=pc.field(PARTITION_PATH) == path).to_table())
            for path in defaults
        )
        check_default_partition(properties, rows, place)
    return missing_key_properties(properties, sample, table.view().partitions, place)


def _typed_fields(table: OpenTable, version: FormatVersion) -> tuple[str, ...] | None:
    """Return the partition fields with their types.

    Types are returned only for a custom key generator, if the new version needs the types and the
    table's properties do not contain them; otherwise None.
    """
    properties = table.properties
    stored = properties.values.get(keys.PARTITION_FIELDS, "")
    is_custom = find_implemented(properties.key_generator) is KeyGeneratorType.CUSTOM
    needs_types = version not in (FormatVersion.V6, table.version)
    if not is_custom or not needs_types or ":" in stored:
        return None
    return typed_partition_fields(properties, stored_rows(table), table.location.url)


def _check_sequence(table: OpenTable, version: FormatVersion) -> None:
    """Check that a table with MySQL's payload has the column that versions before 9 need.

    Before version 9, the payload orders changes by this column, and fails without it.
    """
    if version is FormatVersion.V9 or table.version is not FormatVersion.V9:
        return
    schema = table.schema
    is_mysql = stored_payload(table.properties) == Payload.MYSQL_DEBEZIUM
    if is_mysql and schema is not None and MYSQL_SEQUENCE not in schema.names:
        message = (
            f"table {table.location.url} merges with {Payload.MYSQL_DEBEZIUM} and has no column "
            f"{MYSQL_SEQUENCE}, by which version {version:d} orders its rows; keep the table at "
            "version 9"
        )
        raise Refused(message)


def _check_keys(table: OpenTable, version: FormatVersion) -> None:
    """Check that the stored record keys are valid in version 9.

    In version 9, a ``COMPLEX`` key of a single field has only one encoding; see
    ``lakemark.keygen.key_generator``.
    """
    place, properties = table.location.url, table.properties
    becomes_nine = version is FormatVersion.V9 and table.version is not FormatVersion.V9
    if (
        not becomes_nine
        or find_implemented(properties.key_generator) is not KeyGeneratorType.COMPLEX
    ):
        return
    config = detect_key_generator(properties, stored_rows(table), place).config
    if not config.bare_lone_key:
        return
    field = config.record_key_fields[0]
    message = (
        f"table {place} has the key generator COMPLEX with one field, and its record keys are "
        f"values alone, as Hudi 0.14.1 to 1.0.2 wrote them; Apache Hudi writes '{field}:<value>' "
        f"in version 9, so each update would become a second row; keep the table at version "
        f"{table.version:d} (Apache Hudi continues it with "
        "hoodie.write.complex.keygen.new.encoding=true), or rewrite it"
    )
    raise Refused(message)


def _merges(table: OpenTable, version: FormatVersion) -> bool:
    return table.properties.is_merge_on_read and needs_compaction(table.version, version)


def _compact(
    table: OpenTable, planned: Planned, runner: Runner, merger_class: str | None
) -> tuple[CompactionOperation, ...]:
    Compaction.begin(table, planned, merger_class).run(runner)
    return planned[1].operations
