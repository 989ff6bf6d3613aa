"""Records that could not become rows, and the reasons, as stored in dead-letter tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.decode.rescued_fields import rescue_texts
from transforms.raw_records import HEADERS_TYPE
from transforms.reject_reason import RejectReason

#: The columns of ``Rejects.rows``. ``key`` and ``value`` are the original bytes, so that a replay
#: can convert the record again. If the value has columns, ``value`` is the row as JSON. Dead-letter
#: tables have the columns in this order, so new columns are added at the end.
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
        pa.field("code", pa.string()),
        pa.field("step", pa.string()),
        pa.field("column", pa.string()),
        pa.field("schema_id", pa.int64()),
        # How often the record was converted. The two other columns are null until a replay sets
        # them: the instant that commits the rows of the record, and when this was recorded.
        pa.field("attempts", pa.int32()),
        pa.field("replayed_in", pa.string()),
        pa.field("resolved_at", pa.timestamp("us", "UTC")),
        # The headers that the pipeline reads; null if it reads none.
        pa.field("headers", HEADERS_TYPE),
        # When the record was rejected first; null until the letter is written.
        pa.field("rejected_at", pa.timestamp("us", "UTC")),
    ]
)


class Stage(StrEnum):
    """The step of the conversion that rejected a record."""

    DECODE = "decode"
    TRANSFORM = "transform"
    KEY = "key"
    PARTITION = "partition"
    ORDERING = "ordering"
    EXPECT = "expect"
    ROUTE = "route"


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
        reasons: Sequence[RejectReason],
        stage: Stage,
        topic: str | None = None,
        schema_ids: pa.Array | None = None,
    ) -> Rejects:
        """Reject some records of a batch.

        Args:
            records: the batch (``transforms.raw_records``).
            indices: the rows of ``records`` to reject.
            reasons: the reason for each of these rows.
            stage: the step that rejected them.
            topic: the topic of a batch that has no ``topic`` column.
            schema_ids: the registry's id of the schema of each of these rows; None if the values
                have no ids.
        """
        assert len(indices) == len(reasons), (len(indices), len(reasons))
        rejected = records.take(pa.array(indices, pa.int64()))
        count = len(reasons)
        values: Mapping[str, pa.Array | pa.ChunkedArray] = {
            "topic": pa.repeat(pa.scalar(topic, pa.string()), count),
            **{name: rejected.column(name) for name in rejected.column_names},
            "value": _to_bytes(rejected.column("value")),
            "reason": pa.array(reasons, pa.string()),
            "stage": pa.repeat(stage.value, count),
            "code": pa.array([reason.code for reason in reasons], pa.string()),
            "step": pa.array([reason.step for reason in reasons], pa.string()),
            "column": pa.array([reason.column for reason in reasons], pa.string()),
            "schema_id": pa.nulls(count) if schema_ids is None else schema_ids,
            "attempts": pa.repeat(1, count),
        }
        columns = [
            values[field.name].cast(field.type)
            if field.name in values
            else pa.nulls(count, field.type)
            for field in REJECTS_SCHEMA
        ]
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


def _to_bytes(values: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return values as bytes: those with columns as JSON, in which null counts as absent."""
    if not pa.types.is_struct(values.type):
        return values
    rows = pa.Table.from_struct_array(values)
    texts = rescue_texts(rows, pa.schema([]), [()] * rows.num_rows)
    return pa.array([text or "{}" for text in texts], pa.string())
