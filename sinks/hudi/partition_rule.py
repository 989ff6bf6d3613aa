"""The rule for rows whose record key exists in another partition (``table.partition_change``).

``allow``    the rows are written, and no key is looked up
``count``    the rows are written; the keys that are then in more partitions are counted and
             reported
``reject``   the upserts become dead letters: the attempt that finds them is rolled back, and the
             batch is written again without them
``move``     the row moves (``lakemark.index.global_keys``), in a table without a bucket index
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.index.partition_changes import DELETES_ADD, IS_COUNTED, OTHER_PARTITION, SCHEMA
from lakemark.model.changes import CHANGE_KIND, ChangeKind
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY
from transforms.conversion_config import ConversionConfig
from transforms.converted_batch import ConvertedBatch
from transforms.raw_records import sort_by_arrival
from transforms.reject_reason import RejectCode, RejectReason
from transforms.rejects import Rejects, Stage


class PartitionChange(StrEnum):
    """The rule for a row whose record key exists in another partition."""

    ALLOW = "allow"
    COUNT = "count"
    REJECT = "reject"
    MOVE = "move"

    @property
    def compares_partitions(self) -> bool:
        """Whether keys are looked up in the other partitions of a table with a bucket index."""
        return self in (PartitionChange.COUNT, PartitionChange.REJECT)


@dataclass(frozen=True)
class ChangedRows:
    """Keys and partitions of rows whose key exists in another partition. Can be pickled.

    Attributes:
        rows: the result of ``lakemark.index.partition_changes``.
    """

    rows: pa.Table

    @classmethod
    def merged(cls, parts: Iterable[pa.Table]) -> ChangedRows:
        """Concatenate the rows of several buckets."""
        return cls(pa.concat_tables([SCHEMA.empty_table(), *parts]))

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def __add__(self, other: ChangedRows) -> ChangedRows:
        return ChangedRows.merged([self.rows, other.rows])

    @property
    def count(self) -> int:
        """The number of record keys that are in more partitions after the batch than before it."""
        return int(pc.sum(self.rows.column(IS_COUNTED)).as_py() or 0)

    @property
    def first(self) -> str | None:
        """A description of one counted row, for a message; None if there is none."""
        counted = self.rows.filter(self.rows.column(IS_COUNTED)).slice(0, 1).to_pylist()
        return _describe(counted[0]) if counted else None

    def reject_from(
        self, prepared: ConvertedBatch, records: pa.Table, converter: ConversionConfig
    ) -> ConvertedBatch:
        """Convert the upserts of these keys and partitions to rejects.

        If transforms made several rows of a record, the whole record is rejected.

        Deletes of these rows are kept, except a delete that would itself add a row.

        Args:
            prepared: the changes and rejects of the records.
            records: the raw Kafka records.
            converter: how the records became changes.
        """
        changes = prepared.changes
        row = pc.index_in(_names(changes), value_set=_names(self.rows).combine_chunks())
        is_upsert = pc.equal(changes.column(CHANGE_KIND), int(ChangeKind.UPSERT))
        adds = pc.or_(is_upsert, self.rows.column(DELETES_ADD).take(row.combine_chunks()))
        found = np.flatnonzero(pc.and_(row.is_valid(), pc.fill_null(adds, fill_value=False)))
        if not len(found):
            return prepared
        rejected, first = np.unique(prepared.arrivals[found], return_index=True)
        why = self.rows.take(row.take(pa.array(found[first])).combine_chunks()).to_pylist()
        reasons = [
            RejectReason(
                RejectCode.OTHER_PARTITION,
                f"{_describe(row)}; table.partition_change: reject refuses this row",
            )
            for row in why
        ]
        arrived = sort_by_arrival(records)
        values = arrived.column("value").take(pa.array(rejected))
        schema_ids = converter.value_decoder.schema_ids(values)
        refused = Rejects.from_records(
            arrived, rejected, reasons, Stage.PARTITION, converter.topic, schema_ids
        )
        kept = np.flatnonzero(~np.isin(prepared.arrivals, rejected))
        return replace(
            prepared,
            changes=changes.take(pa.array(kept)),
            rejects=Rejects.concat([prepared.rejects, refused]),
            arrivals=prepared.arrivals[kept],
        )


def _names(rows: pa.Table) -> pa.ChunkedArray:
    """Return partition and key as one text, separated by NUL, which no partition path contains."""
    paths, keys = (rows.column(name).cast(pa.string()) for name in (PARTITION_PATH, RECORD_KEY))
    return pc.binary_join_element_wise(paths, keys, "\0")


def _describe(row: dict[str, str]) -> str:
    return (
        f"record key {row[RECORD_KEY]!r} exists in partition {row[OTHER_PARTITION]!r}, "
        f"but this row is in {row[PARTITION_PATH]!r}"
    )
