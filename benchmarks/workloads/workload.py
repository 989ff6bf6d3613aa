"""A workload: its records, its table, and the newest state of every key.

The same numbers of records always give the same records, and more records begin with the same ones.
No two changes to a key have the same ordering value. After a delete, no change from before the
delete arrives, so the newest state does not depend on when an engine forgets deletes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from benchmarks.peers.contract import TableShape
from benchmarks.workloads import row_shape
from benchmarks.workloads.key_choice import KeyChoice
from benchmarks.workloads.messages import DELETED, avro_messages, avro_schema, json_messages
from benchmarks.workloads.row_shape import RowShape
from streamer.demo.order_stream import EventBlock, EventKind, OrderMix, event_blocks

KAFKA_PARTITIONS = 4
#: Delta commits between two compactions.
COMPACT_EVERY = 5

_SEED = 0
_MOST_KEYS = 400_000
_LATE = OrderMix(late=0.05, repeated=0.0, deleted=0.0, tombstones=0.0, broken=0.0)
_ORDERS = RowShape()
_TYPES = {
    pa.string(): "string",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float64(): "double",
    pa.bool_(): "boolean",
}


@dataclass(frozen=True, slots=True)
class Phase:
    """Records that are sent together; every engine reads them in batches of this size."""

    records: int
    batch: int


@dataclass(frozen=True, slots=True)
class Workload:
    """One topic, and one table that every engine makes of it.

    Attributes:
        about: what is special about the records.
        phases: the phases, of which the last is measured; engines are started again for each.
        shape: the rows.
        choice: how the changes are distributed over the keys.
        mix: the shares of late events and deletes.
        changes_per_key: the number of keys is that of the records divided by this.
        buckets: the file groups in each partition of the table.
        is_avro: whether the values are Avro, not JSON.
        is_small: whether the figure is the time of a batch, not the rate in steady state.
    """

    about: str
    phases: tuple[Phase, ...]
    shape: RowShape = _ORDERS
    choice: KeyChoice = KeyChoice.UNIFORM
    mix: OrderMix = _LATE
    changes_per_key: int = 5
    buckets: int = 2
    is_avro: bool = False
    is_small: bool = False

    @property
    def records(self) -> int:
        """The records of all phases."""
        return sum(phase.records for phase in self.phases)

    @property
    def has_deletes(self) -> bool:
        """Whether some records delete rows."""
        return self.mix.deleted > 0

    def resized(self, records: int | None, batch: int | None) -> Workload:
        """Return the same workload with other numbers in its first phase."""
        first, *others = self.phases
        records, batch = records or first.records, batch or first.batch
        return replace(self, phases=(Phase(records, batch), *others))

    def with_last_batches(self, count: int) -> Workload:
        """Return the same workload with so many batches in its last phase."""
        *others, last = self.phases
        return replace(self, phases=(*others, Phase(count * last.batch, last.batch)))

    def messages(self, first: int, count: int) -> Iterator[pa.RecordBatch]:
        """Yield the keys and values of the records that begin with ``first``, in batches."""
        for events in self._events(count, first):
            rows = self.shape.rows(events)
            is_deleted = pa.array(events.kind == EventKind.DELETE)
            yield avro_messages(rows) if self.is_avro else json_messages(rows, is_deleted)

    def newest_rows(self) -> pa.Table:
        """Return the rows of the table after all records, sorted by key."""
        newest = np.full(self.choice.count_orders(self._keys, self.records), -1, dtype=np.int64)
        for events in self._events(self.records):
            np.maximum.at(newest, events.order, events.updated_at)
        return pa.Table.from_batches(self._surviving(newest), self.shape.schema).sort_by(
            row_shape.RECORD_KEY
        )

    def table_shape(self) -> TableShape:
        """Return what the engines must know."""
        schema = self.shape.schema
        marks = {DELETED: "boolean"} if self.has_deletes else {}
        return TableShape(
            columns={field.name: _type_name(field.type) for field in schema} | marks,
            record_key=row_shape.RECORD_KEY,
            partition=row_shape.PARTITION,
            ordering=row_shape.ORDERING,
            buckets=self.buckets,
            compact_every=COMPACT_EVERY,
            avro_schema=avro_schema(schema) if self.is_avro else None,
            deleted=DELETED if self.has_deletes else None,
        )

    @property
    def _keys(self) -> int:
        return max(1, min(_MOST_KEYS, self.records // self.changes_per_key))

    def _events(self, count: int, first: int = 0) -> Iterator[EventBlock]:
        for events in event_blocks(count, self._keys, _SEED, self.mix, first):
            yield self.choice.apply(events, self._keys)

    def _surviving(self, newest: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Iterator[pa.Table]:
        """Yield the rows of the keys whose newest change is not a delete."""
        for events in self._events(self.records):
            is_newest = events.updated_at == newest[events.order]
            survives = is_newest & (events.kind != EventKind.DELETE)
            yield self.shape.rows(events.take(np.flatnonzero(survives)))


def _type_name(kind: pa.DataType) -> str:
    """Return the name of a type in the language of lakemark and of Spark."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _TYPES[kind]
