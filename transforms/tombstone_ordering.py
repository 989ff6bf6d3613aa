"""The ordering values of tombstones, which have no value that could contain an ordering field.

The source of the ordering value is one of these:

record_timestamp   the timestamp of the Kafka record
a name             the field with this name in the record's JSON key

If a tombstone has an ordering value, it works like a row that is marked as deleted: it does not
delete a newer row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.errors import InvalidConfig
from transforms.decode.decoder import EpochUnit

#: Selects the timestamp of the Kafka record instead of a field of its key.
RECORD_TIMESTAMP = "record_timestamp"

_INT32 = (-(1 << 31), (1 << 31) - 1)


@dataclass(frozen=True, slots=True)
class TombstoneOrdering:
    """The source of the ordering values of tombstones, and the ordering column.

    Attributes:
        source: ``record_timestamp`` or the name of a field of the key.
        column: the ordering column.
        epoch_unit: the unit of timestamps if the column holds integers.
    """

    source: str
    column: pa.Field
    epoch_unit: EpochUnit

    @classmethod
    def for_table(
        cls,
        source: str,
        columns: pa.Schema,
        ordering_fields: Sequence[str],
        epoch_unit: EpochUnit,
    ) -> TombstoneOrdering:
        """Return the ordering of tombstones for a table.

        Args:
            source: ``record_timestamp`` or the name of a field of the key.
            columns: the columns of the table.
            ordering_fields: the ordering fields of the table.
            epoch_unit: the unit of timestamps if the column holds integers.

        Raises:
            InvalidConfig: the table is not ordered by exactly one top-level column, or the column
                cannot hold values of this source.
        """
        if len(ordering_fields) != 1 or ordering_fields[0] not in columns.names:
            found = ", ".join(ordering_fields) or "none"
            message = (
                f"tombstones are ordered by {source}, which needs one ordering column that is not "
                f"inside a struct; found {found}"
            )
            raise InvalidConfig(message)
        column = columns.field(ordering_fields[0])
        if source == RECORD_TIMESTAMP:
            _check_holds_timestamps(column, epoch_unit)
        elif source in columns.names and source != column.name:
            message = (
                f"tombstones are ordered by {source!r}, which is another column; name the field of "
                f"the key {column.name!r}, or give it a name that no column has"
            )
            raise InvalidConfig(message)
        return cls(source, column, epoch_unit)

    @property
    def key_field(self) -> pa.Field | None:
        """The field to read from the Kafka key; None if the source is the record's timestamp."""
        is_in_key = self.source != RECORD_TIMESTAMP
        return pa.field(self.source, self.column.type) if is_in_key else None

    def values(self, keys: pa.Table, timestamps: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return the ordering values of tombstones; null if a value is missing or out of range.

        Args:
            keys: the decoded Kafka keys.
            timestamps: the timestamps of the Kafka records.
        """
        if self.source != RECORD_TIMESTAMP:
            return keys.column(self.source)
        if pa.types.is_timestamp(self.column.type):
            return timestamps.cast(self.column.type, safe=False)
        unit = pa.timestamp(self.epoch_unit, timestamps.type.tz)
        epochs = timestamps.cast(unit, safe=False).cast(pa.int64())
        if self.column.type == pa.int64():
            return epochs
        first, last = _INT32
        fits = pc.and_(pc.greater_equal(epochs, first), pc.less_equal(epochs, last))
        return pc.if_else(fits, epochs, pa.scalar(None, pa.int64())).cast(self.column.type)


def _check_holds_timestamps(column: pa.Field, epoch_unit: EpochUnit) -> None:
    if pa.types.is_timestamp(column.type) or column.type == pa.int64():
        return
    if column.type != pa.int32():
        message = (
            f"tombstones are ordered by {RECORD_TIMESTAMP}, which column {column.name!r} of type "
            f"{column.type} cannot hold; declare it as bigint or timestamp"
        )
        raise InvalidConfig(message)
    if epoch_unit != "s":
        message = (
            f"tombstones are ordered by {RECORD_TIMESTAMP}, which does not fit the int column "
            f"{column.name!r} in {epoch_unit}; declare it as bigint"
        )
        raise InvalidConfig(message)
