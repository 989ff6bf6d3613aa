"""Kafka records that could not become rows, and the reasons, as stored in dead-letter tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

#: The columns of ``Rejects.rows``. ``key`` and ``value`` are the original bytes, so that users can
#: send the record again.
REJECTS_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("reason", pa.string()),
        pa.field("stage", pa.string()),
    ]
)


class Stage(StrEnum):
    """The step of the conversion that rejected a record."""

    DECODE = "decode"
    TRANSFORM = "transform"
    KEY = "key"
    PARTITION = "partition"
    ORDERING = "ordering"


@dataclass(frozen=True, slots=True)
class Rejects:
    """Rejected records. ``rows`` has the columns of ``REJECTS_SCHEMA``."""

    rows: pa.Table

    @classmethod
    def empty(cls) -> Rejects:
        """Return no rejects."""
        return cls(REJECTS_SCHEMA.empty_table())

    @classmethod
    def from_records(
        cls,
        records: pa.Table,
        indices: npt.NDArray[np.int64],
        reasons: Sequence[str],
        stage: Stage,
        topic: str | None = None,
    ) -> Rejects:
        """Reject some records of a batch.

        Args:
            records: the batch, with ``key``, ``value``, ``partition``, ``offset``, ``timestamp``
                and, if it has more than one topic, ``topic``.
            indices: the rows of ``records`` to reject.
            reasons: the reason for each of these rows.
            stage: the step that rejected them.
            topic: the topic of a batch that has no ``topic`` column.
        """
        assert len(indices) == len(reasons), (len(indices), len(reasons))
        rejected = records.take(pa.array(indices, pa.int64()))
        values: dict[str, pa.Array | pa.ChunkedArray] = {
            "topic": pa.repeat(pa.scalar(topic, pa.string()), len(reasons)),
            **{name: rejected.column(name) for name in rejected.column_names},
            "reason": pa.array(reasons, pa.string()),
            "stage": pa.repeat(pa.scalar(stage.value, pa.string()), len(reasons)),
        }
        columns = [values[field.name].cast(field.type) for field in REJECTS_SCHEMA]
        return cls(pa.table(columns, schema=REJECTS_SCHEMA))

    @classmethod
    def concat(cls, parts: Iterable[Rejects]) -> Rejects:
        """Combine several rejects, sorted by topic, partition and offset."""
        tables = [part.rows for part in parts if len(part)]
        if not tables:
            return cls.empty()
        by_arrival = [(name, "ascending") for name in ("topic", "partition", "offset")]
        return cls(pa.concat_tables(tables).sort_by(by_arrival))

    def __len__(self) -> int:
        return int(self.rows.num_rows)
