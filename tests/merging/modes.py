"""All merge modes: the table properties, and the same rule applied record by record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from lakemark.config import keys
from lakemark.config.new_table_properties import new_table_properties
from lakemark.config.table_properties import MergeMode, TableProperties, TableType
from lakemark.model.meta_columns import COMMIT_TIME
from tests.merging.rules import (
    UNAVAILABLE,
    Record,
    Rule,
    by_commit_time,
    by_event_time,
    is_null,
    is_unavailable,
    is_unwritten,
)
from tests.merging.written_table import KEY

#: Columns that do not decide the order.
VALUES = ("name", "price")
#: The columns of a record of the models: the same, and the time at which it was written.
MODELLED = (COMMIT_TIME, *VALUES)

_DEFAULTS = {keys.PARTIAL_UPDATE_MODE: "IGNORE_DEFAULTS"}
_UNAVAILABLE = {
    keys.PARTIAL_UPDATE_MODE: "FILL_UNAVAILABLE",
    keys.UNAVAILABLE_VALUE: UNAVAILABLE,
}


@dataclass(frozen=True)
class Mode:
    """A way to merge the changes of a key.

    Attributes:
        merge_mode: the merge mode of the table.
        rule: the same rule for two records.
        properties: further properties of the table.
        ordering: its ordering columns.
        is_in_part: whether rows may be partial.
    """

    merge_mode: MergeMode
    rule: Rule
    properties: Mapping[str, str] = field(default_factory=dict)
    ordering: Mapping[str, pa.DataType] = field(default_factory=lambda: {"ts": pa.int32()})
    is_in_part: bool = False

    @property
    def schema(self) -> pa.Schema:
        """The columns of its tables, without Hudi's own."""
        values = [(name, pa.string()) for name in VALUES]
        return pa.schema([(KEY, pa.string()), *self.ordering.items(), *values])

    @property
    def smallest_ts(self) -> int:
        """The smallest ordering value of generated records.

        It is 0 for one column of 32-bit integers, so that Hudi's default value occurs.
        """
        return 0 if list(self.ordering.values()) == [pa.int32()] else 1

    def table_properties(self, table_type: TableType) -> TableProperties:
        """Return the properties of a table without partitions."""
        is_ordered = self.merge_mode is MergeMode.EVENT_TIME
        ordering = tuple(self.ordering) if is_ordered else ()
        plain = new_table_properties("trips", table_type, (KEY,), (), ordering, self.merge_mode)
        return TableProperties({**plain.values, **self.properties})

    def row(self, record: Record) -> dict[str, object]:
        """Convert a record to a row of a table; a column that was not written is null."""
        values = {name: record.values[name] for name in VALUES}
        return {KEY: record.key, **self._ordering_values(record.ts), **values}

    def _ordering_values(self, ts: int) -> dict[str, object]:
        """The values of the ordering columns.

        One column gets the number ``ts``. Two columns get its two digits to the base of 3.
        """
        digits = (ts // 3, ts % 3) if len(self.ordering) == 2 else (ts,)
        return {
            name: f"log.{digit:06}" if pa.types.is_string(kind) else digit
            for (name, kind), digit in zip(self.ordering.items(), digits, strict=True)
        }


MODES: Mapping[str, Mode] = {
    "commit time": Mode(MergeMode.COMMIT_TIME, by_commit_time()),
    "commit time, defaults": Mode(MergeMode.COMMIT_TIME, by_commit_time(is_null), _DEFAULTS),
    "commit time, unavailable": Mode(
        MergeMode.COMMIT_TIME, by_commit_time(is_unavailable), _UNAVAILABLE
    ),
    "commit time, in part": Mode(
        MergeMode.COMMIT_TIME, by_commit_time(is_unwritten), is_in_part=True
    ),
    "event time": Mode(MergeMode.EVENT_TIME, by_event_time()),
    "event time, long": Mode(MergeMode.EVENT_TIME, by_event_time(), ordering={"ts": pa.int64()}),
    "event time, two columns": Mode(
        MergeMode.EVENT_TIME,
        by_event_time(),
        ordering={"file": pa.string(), "pos": pa.int64()},
    ),
    "event time, defaults": Mode(MergeMode.EVENT_TIME, by_event_time(is_null), _DEFAULTS),
    "event time, unavailable": Mode(
        MergeMode.EVENT_TIME, by_event_time(is_unavailable), _UNAVAILABLE
    ),
    "event time, in part": Mode(MergeMode.EVENT_TIME, by_event_time(is_unwritten), is_in_part=True),
}
