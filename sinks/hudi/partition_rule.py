"""What happens to rows whose record key exists in another partition (``table.partition_change``).

``count``    they are written, counted and reported
``refuse``   they are dead letters: the attempt that found them is undone, and the batch is written
             again without them
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from table.index.partition_changes import OTHER_PARTITION, SCHEMA
from table.model.changes import CHANGE_KIND, ChangeKind
from table.model.meta_columns import PARTITION_PATH, RECORD_KEY
from transforms.kafka_changes import Prepared
from transforms.kafka_records import in_order_of_arrival
from transforms.rejects import Rejects, Stage


class PartitionChange(StrEnum):
    """What happens to a row whose record key exists in another partition."""

    ALLOW = "allow"
    COUNT = "count"
    REFUSE = "refuse"


@dataclass(frozen=True)
class ChangedRows:
    """Rows that change their partition; pickles.

    Attributes:
        rows: key, partition, and another partition that has the key; see
            ``table.index.partition_changes``.
    """

    rows: pa.Table

    @classmethod
    def merged(cls, parts: Iterable[pa.Table]) -> ChangedRows:
        """All of them together."""
        return cls(pa.concat_tables([SCHEMA.empty_table(), *parts]))

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def __add__(self, other: ChangedRows) -> ChangedRows:
        return ChangedRows.merged([self.rows, other.rows])

    @property
    def first(self) -> str | None:
        """One of them, for a message; None without any."""
        return _described(self.rows.slice(0, 1).to_pylist()[0]) if len(self) else None

    def reject_from(self, prepared: Prepared, records: pa.Table, topic: str | None) -> Prepared:
        """The same without these rows, which become rejects.

        Args:
            prepared: of the records.
            records: raw Kafka records.
            topic: of records that have no ``topic`` column.
        """
        changes = prepared.changes
        place = pc.index_in(_names(changes), value_set=_names(self.rows).combine_chunks())
        is_upsert = pc.equal(changes.column(CHANGE_KIND), int(ChangeKind.UPSERT))
        found = np.flatnonzero(pc.and_(place.is_valid(), is_upsert))
        if not len(found):
            return prepared
        why = self.rows.take(place.take(pa.array(found)).combine_chunks()).to_pylist()
        reasons = [f"{_described(row)}; table.partition_change refuses it" for row in why]
        arrived = in_order_of_arrival(records)
        refused = Rejects.of(arrived, prepared.arrivals[found], reasons, Stage.PARTITION, topic)
        kept = np.setdiff1d(np.arange(changes.num_rows), found)
        return replace(
            prepared,
            changes=changes.take(pa.array(kept)),
            rejects=Rejects.concat([prepared.rejects, refused]),
            arrivals=prepared.arrivals[kept],
        )


def _names(rows: pa.Table) -> pa.ChunkedArray:
    """Partition and key as one text; a partition path holds no NUL."""
    paths, keys = (rows.column(name).cast(pa.string()) for name in (PARTITION_PATH, RECORD_KEY))
    return pc.binary_join_element_wise(paths, keys, "\0")


def _described(row: dict[str, str]) -> str:
    return (
        f"record key {row[RECORD_KEY]!r} exists in partition {row[OTHER_PARTITION]!r}, "
        f"and the row is in {row[PARTITION_PATH]!r}"
    )
