"""Plans the queries of an open table: parses the condition, and opens the indexes it can use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.config.table_properties import TableProperties
from lakemark.errors import CorruptData, InvalidConfig, SnapshotChanged
from lakemark.merge.custom.api import CustomMerger
from lakemark.model.instant import Instant
from lakemark.operations.cached_snapshot import CachedSnapshot
from lakemark.operations.expression_trust import trusted_expressions
from lakemark.operations.query_indexes import QueryIndexes
from lakemark.operations.recorded_facts import RecordedFacts
from lakemark.read.instant_range import EARLIEST
from lakemark.read.queries import Incremental, Query, Snapshot
from lakemark.read.query_instant import GivenTime
from lakemark.read.scan import Scan
from lakemark.read.scan_planner import ScanPlanner
from lakemark.storage import Storage
from lakemark.timeline.timeline_store import TimelineStore

if TYPE_CHECKING:
    from lakemark.read.cdc import ChangeFormat
    from lakemark.read.cdc.scan import CdcScan
    from lakemark.read.explanation import Explanation

Planned = TypeVar("Planned")

LATEST = Snapshot()

_NO_COLUMNS: dict[str, Any] = {"type": "record", "name": "empty", "fields": []}


@dataclass(frozen=True, slots=True)
class TableQueries:
    """Plans queries of one table, as of its cached timeline.

    Attributes:
        storage: the storage of the table's root.
        store: reads the table's timeline.
        snapshot: the cached properties, timeline, view and metadata table.
        facts: what the commits record.
        indexes: the indexes that queries use.
        mergers: the users' mergers, for a table in merge mode ``CUSTOM``.
    """

    storage: Storage
    store: TimelineStore
    snapshot: CachedSnapshot
    facts: RecordedFacts
    indexes: QueryIndexes
    mergers: tuple[CustomMerger, ...]

    def scan(
        self,
        query: Query = LATEST,
        columns: Sequence[str] | None = None,
        where: pc.Expression | str | None = None,
        record_keys: Sequence[str] | None = None,
    ) -> Scan:
        """Plan to read rows; see ``lakemark.Table.scan``."""

        def plan() -> Scan:
            planner, condition, keys = self._prepare(query, where, record_keys)
            return planner.plan(query, columns, condition, keys)

        return self._with_current_metadata(plan)

    def explain(
        self,
        query: Query = LATEST,
        where: pc.Expression | str | None = None,
        record_keys: Sequence[str] | None = None,
    ) -> Explanation:
        """Explain which file groups a query reads; see ``lakemark.Table.explain``."""
        from lakemark.read import explanation  # imported here, because few queries need it

        def explain() -> Explanation:
            planner, condition, keys = self._prepare(query, where, record_keys)
            return explanation.explain(planner, query, condition, keys)

        return self._with_current_metadata(explain)

    def _with_current_metadata(self, plan: Callable[[], Planned]) -> Planned:
        """Plan a query; if the metadata table has changed since it was opened, plan it again."""
        try:
            return plan()
        except (SnapshotChanged, CorruptData):
            # Another process may have built the metadata table again since it was opened.
            if not self.snapshot.forget_metadata():
                raise
            return plan()

    def _prepare(
        self,
        query: Query,
        where: pc.Expression | str | None,
        record_keys: Sequence[str] | None,
    ) -> tuple[ScanPlanner, pc.Expression | None, pa.Array | None]:
        """Return the planner of a query, its parsed condition, and its keys as an Arrow array."""
        if not isinstance(where, pc.Expression | str | None):
            message = f"where is {where!r}; pass an Arrow expression, or a condition as text"
            raise InvalidConfig(message)
        is_filtered = where is not None or record_keys is not None
        is_latest = not isinstance(query, Incremental) and query.as_of is None
        planner = self._planner(is_filtered=is_filtered, is_latest=is_latest)
        given = where
        if isinstance(where, str):
            from lakemark.read.where import parse_where

            where = parse_where(where, planner.schema)
        elif where is not None and (isinstance(query, Incremental) or query.as_of is None):
            _check_condition(where, planner.schema)
        wanted = None if record_keys is None else pa.array(record_keys, pa.string())
        if is_filtered:
            is_current = is_latest and isinstance(query, Snapshot)
            planner = self._with_demands(planner, given, wanted, is_current=is_current)
        return planner, where, wanted

    def _with_demands(
        self,
        planner: ScanPlanner,
        where: pc.Expression | str | None,
        record_keys: pa.Array | None,
        *,
        is_current: bool,
    ) -> ScanPlanner:
        """Return the planner with the keys and values that a query demands, and their indexes.

        Args:
            planner: the planner of the query.
            where: the condition on the rows.
            record_keys: the keys of the rows; None for any key.
            is_current: whether the query is a snapshot query of the latest rows.
        """
        from lakemark.read.demanded_keys import demanded_keys
        from lakemark.read.demanded_values import demanded_values

        values = {} if where is None else demanded_values(where, planner.schema)
        if record_keys is None:
            demanded = demanded_keys(values, planner.schema, self.indexes.key_settings())
        else:
            demanded = record_keys.drop_null()
        if is_current and values:
            value_groups = self.indexes.groups_of_values(values, planner.schema)
            value_filters = self.indexes.filters_of_values(values, planner.schema)
            planner = replace(planner, value_groups=value_groups, value_filters=value_filters)
        if demanded is None or not self._properties.populates_meta_columns:
            return replace(planner, demanded_keys=demanded)
        groups = self.indexes.groups_of_keys(demanded) if is_current else None
        filters = self.indexes.key_filters() if groups is None else None
        return replace(planner, demanded_keys=demanded, key_groups=groups, key_filters=filters)

    def changes(self, begin: GivenTime = EARLIEST, end: GivenTime | None = None) -> CdcScan:
        """Plan to read changes; see ``lakemark.Table.changes``."""
        return self._planner().changes(begin, end)

    def changes_of(self, commits: Sequence[Instant], form: ChangeFormat) -> CdcScan:
        """Plan to read the changes of some commits; see ``cdc.plan_commits``."""
        return self._planner().changes_of(commits, form)

    def rows_of(self, commit: Instant) -> Scan:
        """Plan to read the rows that one commit wrote; see ``incremental.plan_commit``."""
        return self._planner().rows_of(commit)

    def _planner(self, *, is_filtered: bool = False, is_latest: bool = False) -> ScanPlanner:
        """Return a scan planner. Only what the scan uses is opened.

        A condition on the latest rows may select few file slices, so the others are not loaded.
        """
        parts = self.snapshot.partial_views() if is_filtered and is_latest else None
        if parts is None:
            self.snapshot.view()
        return ScanPlanner(
            self.storage,
            self._properties,
            self.store,
            self.snapshot.view,
            self.facts.known_avro_schema or _NO_COLUMNS,
            parts,
            self.indexes.statistics() if is_filtered else None,
            self.indexes.key_hashes() if is_filtered and is_latest else None,
            self.mergers,
            trusted_expressions(self.store, self.snapshot.timeline, self._properties)
            if is_filtered
            else (),
        )

    @property
    def _properties(self) -> TableProperties:
        return self.snapshot.properties


def _check_condition(where: pc.Expression, columns: pa.Schema) -> None:
    """Check that Arrow can evaluate an expression on rows with these columns."""
    try:
        columns.empty_table().filter(where)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        message = (
            f"where cannot be evaluated on the columns {', '.join(columns.names)}: "
            f"{str(error).splitlines()[0]}; correct the expression"
        )
        raise InvalidConfig(message) from error
