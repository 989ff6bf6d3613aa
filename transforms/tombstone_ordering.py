"""The ordering value of a tombstone, which has no value of its own to carry one.

record_timestamp   the time of the Kafka record
a name             a field of the record's JSON key

With one, a tombstone deletes like a row that is flagged as deleted: it loses to what is newer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.errors import InvalidConfig
from transforms.decode.decoder import EpochUnit

#: The time of the Kafka record, rather than a field of its key.
RECORD_TIMESTAMP = "record_timestamp"

_INT32 = (-(1 << 31), (1 << 31) - 1)


@dataclass(frozen=True, slots=True)
class TombstoneOrdering:
    """Where the ordering value comes from and where it goes.

    Attributes:
        source: ``record_timestamp`` or a field of the key.
        column: the ordering column.
        epoch_unit: of timestamps in a column of integers.
    """

    source: str
    column: pa.Field
    epoch_unit: EpochUnit

    @classmethod
    def of(
        cls,
        source: str,
        columns: pa.Schema,
        ordering_fields: Sequence[str],
        epoch_unit: EpochUnit,
    ) -> TombstoneOrdering:
        """For a table of these columns.

        Raises:
            InvalidConfig: the table is not ordered by one column of its own, or its values cannot
                come from there.
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
                f"tombstones are ordered by {source!r}, which is a column of its own; name the "
                f"field of the key {column.name!r}, or as no column is named"
            )
            raise InvalidConfig(message)
        return cls(source, column, epoch_unit)

    @property
    def key_field(self) -> pa.Field | None:
        """What the Kafka key must be read for besides."""
        is_in_key = self.source != RECORD_TIMESTAMP
        return pa.field(self.source, self.column.type) if is_in_key else None

    def values(self, keys: pa.Table, timestamps: pa.ChunkedArray) -> pa.ChunkedArray:
        """Ordering values of tombstones; null where there is none, or one too large.

        Args:
            keys: what was read of the Kafka keys.
            timestamps: of the Kafka records.
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
