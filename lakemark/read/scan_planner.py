"""Plans queries: selects the file slices, the columns and the reader."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.config import keys
from lakemark.config.merge_settings import merge_settings
from lakemark.config.partition_field import PartitionField
from lakemark.config.table_properties import MergeMode, TableProperties
from lakemark.errors import InvalidConfig, Unsupported
from lakemark.merge.custom.api import CustomMerger
from lakemark.merge.record_merger import commit_time_merger
from lakemark.merge.table_merger import table_merger
from lakemark.model.file_slice import FileSlice
from lakemark.model.instant import Instant
from lakemark.model.meta_columns import (
    COMMIT_TIME,
    RECORD_KEY,
    with_meta_columns,
    without_meta_columns,
)
from lakemark.read import incremental, time_travel
from lakemark.read.file_group_reader import FileGroupReader
from lakemark.read.index_protocols import FileStatistics, GroupIndex, KeySearch, SliceSearch
from lakemark.read.instant_range import InstantRange
from lakemark.read.path_columns import PathColumns
from lakemark.read.projection import project_schema
from lakemark.read.pruning import SlicePruner
from lakemark.read.queries import Incremental, Query, ReadOptimized
from lakemark.read.query_instant import GivenTime
from lakemark.read.scan import Scan
from lakemark.read.virtual_keys import VirtualKeys
from lakemark.schema import avro
from lakemark.storage import Storage
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.view.file_system_view import FileSystemView
from lakemark.view.partial_views import PartialViews
from lakemark.view.visible_instants import VisibleInstants

if TYPE_CHECKING:
    from lakemark.read.cdc import ChangeFormat
    from lakemark.read.cdc.scan import CdcScan

AvroSchema = Mapping[str, Any]


@dataclass(frozen=True)
class ScanPlanner:
    """Plans queries of one table in one state of its timeline.

    Attributes:
        storage: storage at the table's root.
        properties: properties of the table.
        store: reads the table's instants.
        whole_view: returns the table's current file slices.
        parts: views of parts of the table, for queries that do not need all file slices; None if
            the whole view is in memory, or if the table has no metadata table.
        avro_schema: the table's current columns, without the meta columns.
        statistics: column statistics of the table's files, if there are any.
        key_hashes: the hashes of record keys, if they decide the file groups of all records.
        mergers: custom mergers, for a table in merge mode ``CUSTOM``.
        expressions: the partition expressions whose values all rows of the table have.
        demanded_keys: record keys, of which each row of the query has one; None if it is not known.
        key_groups: the file groups of these keys, if the record index has them. It describes the
            latest rows, so it is used only for snapshot queries of them.
        value_groups: the file groups with values that the query demands, if an index has them; as
            ``key_groups``, only for snapshot queries of the latest rows.
        key_filters: key ranges and Bloom filters of base files, if they are used.
        value_filters: bloom filters that decide about demanded values, if there are any; only for
            snapshot queries of the latest rows.
    """

    storage: Storage
    properties: TableProperties
    store: TimelineStore
    whole_view: Callable[[], FileSystemView]
    avro_schema: AvroSchema
    parts: PartialViews | None = None
    statistics: FileStatistics | None = None
    key_hashes: KeySearch | None = None
    mergers: Sequence[CustomMerger] = ()
    expressions: Sequence[PartitionField] = ()
    demanded_keys: pa.Array | None = None
    key_groups: GroupIndex | None = None
    value_groups: GroupIndex | None = None
    key_filters: KeySearch | None = None
    value_filters: SliceSearch | None = None

    @property
    def view(self) -> FileSystemView:
        """The table's current file slices."""
        return self.whole_view()

    @property
    def schema(self) -> pa.Schema:
        """The table's current columns."""
        return table_schema(self.avro_schema, self.properties)

    def plan(
        self,
        query: Query,
        columns: Sequence[str] | None,
        condition: pc.Expression | None,
        record_keys: pa.Array | None = None,
    ) -> Scan:
        """Plan a query.

        Args:
            query: the type of query, with its time or range.
            columns: the columns of the result, in this order; all when None.
            condition: a condition on the rows; None for all rows. The keys and values that the
                planner searches are those that this condition and ``record_keys`` demand.
            record_keys: return only rows with these keys; None for any key.

        Raises:
            InvalidConfig: a column is unknown or named twice; or keys are given for a table without
                meta columns; or the time or range is invalid, or its files were cleaned.
            SnapshotChanged: the table changed in the meantime; load it again.
            CorruptData: an instant or statistics are damaged.
            Unsupported: lakemark does not know how to merge the table.
        """
        if record_keys is not None:
            condition = self._add_key_condition(condition, record_keys)
        if isinstance(query, Incremental):
            return self._plan_incremental(query, columns, condition)
        if query.as_of is not None:
            return self._plan_as_of(query, query.as_of, columns, condition)
        pruner = self.create_pruner()
        view = self._view_for(condition, pruner)
        is_optimized = isinstance(query, ReadOptimized)
        latest = view.read_optimized() if is_optimized else view.latest_slices()
        slices = self.find_slices_by_hash(latest, query)
        slices = self.find_slices_of_keys(slices)
        slices = self.find_slices_by_value(slices)
        return self._plan_scan(slices, columns, condition, view.visible_instants, pruner)

    def without_demands(self) -> ScanPlanner:
        """Return the planner for the same query without a condition and record keys."""
        return replace(
            self,
            demanded_keys=None,
            key_groups=None,
            value_groups=None,
            key_filters=None,
            value_filters=None,
        )

    def find_slices_of_keys(self, slices: Sequence[FileSlice]) -> Sequence[FileSlice]:
        """Return the slices that may contain a demanded key, by the record index if there is one.

        Errors as for ``GroupIndex.select``.
        """
        return slices if self.key_groups is None else self.key_groups.select(slices)

    def find_slices_by_value(self, slices: Sequence[FileSlice]) -> Sequence[FileSlice]:
        """Return the slices that may have a demanded value, by secondary indexes if there are any.

        Errors as for ``GroupIndex.select``.
        """
        return slices if self.value_groups is None else self.value_groups.select(slices)

    def find_slices_by_hash(self, slices: Sequence[FileSlice], query: Query) -> Sequence[FileSlice]:
        """Return the slices that may contain a demanded key, by the hashes of the keys.

        The hashes describe the current file groups, so they are not used for earlier states.
        """
        if self.key_hashes is None or self.demanded_keys is None:
            return slices
        if isinstance(query, Incremental) or query.as_of is not None:
            return slices
        return self.key_hashes.select(slices, self.demanded_keys)

    def _view_for(self, condition: pc.Expression | None, pruner: SlicePruner) -> FileSystemView:
        """Return a view with all file groups that may contain a row that meets the condition.

        Only the files of these groups become file slices, if the metadata table can list them and
        if these are at most half of all files.
        """
        if condition is None or self.parts is None:
            return self.view
        paths = pruner.select_partitions(self.parts.partitions, condition)
        listed = files = self.parts.files_in(paths)
        for index in (self.key_groups, self.value_groups):
            files = files if index is None else index.select_files(files)
        files = pruner.select_file_groups(files, condition)
        if len(paths) == len(self.parts.partitions) and 2 * len(files) > len(listed):
            return self.view  # which is kept for the next query
        return self.parts.view_of(files)

    def changes(self, begin: GivenTime, end: GivenTime | None) -> CdcScan:
        """Plan a CDC query: what each commit of a range did to each record.

        Args:
            begin: the range begins after this requested time, or ``earliest``.
            end: the last requested time in the range; None if the range has no end.

        Raises:
            HudiError: as for ``plan``.
        """
        self._check_has_partition_columns()
        instant_range = InstantRange.of(begin, end, self.store.clock)
        from lakemark.read import cdc  # imported here, because few queries need it
        from lakemark.read.cdc.scan import CdcScan

        plan = cdc.plan(self.view, self.store, self.properties, instant_range)
        return CdcScan(self._create_reader(self.avro_schema, self.view.visible_instants), plan)

    def changes_of(self, commits: Sequence[Instant], form: ChangeFormat) -> CdcScan:
        """Plan a CDC query of some completed commits; see ``cdc.plan_commits``.

        Args:
            commits: the commits.
            form: the columns of the changes.
        """
        self._check_has_partition_columns()
        from lakemark.read import cdc
        from lakemark.read.cdc.scan import CdcScan

        plan = cdc.plan_commits(self.view, self.store, self.properties, commits)
        reader = self._create_reader(self.avro_schema, self.view.visible_instants)
        return CdcScan(reader, plan, form)

    def rows_of(self, commit: Instant) -> Scan:
        """Plan an incremental query of one completed commit; see ``incremental.plan_commit``."""
        self._check_has_commit_times()
        plan = incremental.plan_commit(self.view, self.store, commit)
        return self._plan_scan(plan.slices, None, plan.condition, plan.visible)

    def _check_has_partition_columns(self) -> None:
        if self.properties.drops_partition_columns:
            message = (
                f"table {self.properties.table_name}: its files lack the partition columns "
                f"({keys.DROP_PARTITION_COLUMNS}), so it has no CDC queries; use an incremental "
                "query instead"
            )
            raise InvalidConfig(message)

    def _add_key_condition(
        self, condition: pc.Expression | None, record_keys: pa.Array
    ) -> pc.Expression:
        if not self.properties.populates_meta_columns:
            message = f"rows of this table do not contain their key: the table has no {RECORD_KEY}"
            raise InvalidConfig(message)
        wanted = pc.field(RECORD_KEY).isin(record_keys)
        return wanted if condition is None else wanted & condition

    def _plan_as_of(
        self,
        query: Query,
        as_of: GivenTime,
        columns: Sequence[str] | None,
        condition: pc.Expression | None,
    ) -> Scan:
        is_optimized = isinstance(query, ReadOptimized)
        past = time_travel.plan(self.view, self.store, as_of, read_optimized=is_optimized)
        schema = self.avro_schema if past.schema is None else json.loads(past.schema)
        planner = replace(self, avro_schema=schema)
        if not self._has_same_keys(planner.schema):
            planner = planner.without_demands()
        return planner._plan_scan(past.slices, columns, condition, past.visible)

    def _has_same_keys(self, past: pa.Schema) -> bool:
        """Return whether the fields of the record key have the same types as in the past."""
        names = self.properties.record_key_fields
        own = self.schema
        return all(
            name in past.names
            and name in own.names
            and past.field(name).type.equals(own.field(name).type)
            for name in names
        )

    def _plan_incremental(
        self, query: Incremental, columns: Sequence[str] | None, condition: pc.Expression | None
    ) -> Scan:
        self._check_has_commit_times()
        instant_range = InstantRange.of(query.begin, query.end, self.store.clock)
        plan = incremental.plan(self.view, self.store, instant_range)
        both = plan.condition if condition is None else plan.condition & condition
        return self._plan_scan(plan.slices, columns, both, plan.visible)

    def _check_has_commit_times(self) -> None:
        if not self.properties.populates_meta_columns:
            message = (
                f"rows of this table do not contain their commit: the table has no {COMMIT_TIME}"
            )
            raise InvalidConfig(message)

    def _plan_scan(
        self,
        slices: Sequence[FileSlice],
        columns: Sequence[str] | None,
        condition: pc.Expression | None,
        visible: VisibleInstants | None = None,
        pruner: SlicePruner | None = None,
    ) -> Scan:
        reader = self._create_reader(
            self.avro_schema, visible or self.view.visible_instants, slices
        )
        names = reader.schema.names if columns is None else list(columns)
        _check_named_once(names)
        project_schema(reader.schema, names)
        if condition is not None:
            slices = (pruner or self.create_pruner()).select(slices, condition)
        if self.demanded_keys is not None and self.key_filters is not None:
            slices = self.key_filters.select(slices, self.demanded_keys)
        if self.value_filters is not None:
            slices = self.value_filters.select(slices)
        return Scan(reader, tuple(slices), tuple(names), condition)

    def _create_reader(
        self,
        avro_schema: AvroSchema,
        visible: VisibleInstants,
        slices: Sequence[FileSlice] | None = None,
    ) -> FileGroupReader:
        columns = table_schema(avro_schema, self.properties)
        if slices is not None and not any(file_slice.logs for file_slice in slices):
            # Without logs nothing is merged, so an unknown merge mode does not matter.
            path_columns = PathColumns.of(self.properties)
            return FileGroupReader(
                self.storage, columns, commit_time_merger(), path_columns=path_columns
            )
        settings = merge_settings(self.properties)
        return FileGroupReader(
            self.storage,
            columns,
            table_merger(settings, avro_schema, self.mergers),
            visible,
            settings.delete_marker,
            virtual_keys=VirtualKeys.of(self.properties),
        )

    def create_pruner(self, schema: pa.Schema | None = None) -> SlicePruner:
        """Return a pruner of file slices.

        Args:
            schema: the columns as of the query; None for the current columns.
        """
        properties = self.properties
        fields = properties.partition_fields if properties.folders_are_values else ()
        # Partition columns that the files lack have no statistics.
        statistics = None if properties.drops_partition_columns else self.statistics
        makes_values = may_make_values(properties)
        return SlicePruner(
            schema or self.schema,
            fields,
            properties.url_encode,
            properties.hive_style,
            properties.slash_separated_dates and bool(fields),
            statistics,
            makes_values,
            {} if makes_values else {one.stored_column: one for one in self.expressions},
        )


def may_make_values(properties: TableProperties) -> bool:
    """Return whether merging a table may create a value that no file has."""
    try:
        return merge_settings(properties).mode is MergeMode.CUSTOM
    except Unsupported:  # raised again if there is something to merge
        return True


def may_change_in_compaction(properties: TableProperties) -> bool:
    """Return whether a compaction may change a value that queries read before.

    Rows that were written since the compaction was planned are then merged in another order. This
    makes a difference if late rows fill columns, and perhaps for a custom merger.
    """
    if not properties.is_merge_on_read:
        return False
    try:
        settings = merge_settings(properties)
    except Unsupported:  # raised again if there is something to merge
        return True
    fills_late = settings.mode is MergeMode.EVENT_TIME and settings.partial_update is not None
    return fills_late or settings.mode is MergeMode.CUSTOM


def _check_named_once(columns: Sequence[str]) -> None:
    twice = sorted(name for name, times in Counter(columns).items() if times > 1)
    if twice:
        message = f"columns {twice} are requested more than once; name each column once"
        raise InvalidConfig(message)


def table_schema(avro_schema: AvroSchema, properties: TableProperties) -> pa.Schema:
    """Return the columns of a table, including its meta columns, if it has any.

    Args:
        avro_schema: the schema in the table's commits.
        properties: properties of the table.
    """
    schema = avro.to_arrow(avro_schema)
    path_columns = PathColumns.of(properties)
    if path_columns is not None:
        schema = path_columns.append_to(schema)
    populated = properties.populates_meta_columns
    return with_meta_columns(schema) if populated else without_meta_columns(schema)
