"""The records of the benchmark: orders as JSON, made column by column, the same in every run.

About 230 bytes each; of 400,000 keys, spread evenly over four Kafka partitions and four partitions
of the table; versions of a key arrive partly out of order, and no two have the same ordering value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

RECORD_KEY = "order_id"
TABLE_PARTITION = "region"
ORDERING = "updated_at"
BUCKETS = 2
COMPACT_EVERY = 5
KAFKA_PARTITIONS = 4

_REGIONS = pa.array(["north", "east", "south", "west"])
_STATES = pa.array(["placed", "paid", "packed", "shipped", "delivered", "returned"])
_NOTES = pa.array(
    [
        f"{word} at the door, please ring the bell twice, then {word} a while"
        for word in ("leave", "wait", "ask")
    ]
)
_EPOCH_MS = 1_767_225_600_000
_CHUNK_RECORDS = 100_000


@dataclass(frozen=True, slots=True)
class Orders:
    """A range of the endless sequence of records.

    Attributes:
        first: number of the first record; a multiple of four.
        count: how many.
        keys: how many different orders there are.
    """

    first: int
    count: int
    keys: int = 400_000

    def chunks(self) -> Iterator[pa.Table]:
        """The rows, in order of sending; row ``i`` of all goes to Kafka partition ``i % 4``."""
        for start in range(self.first, self.first + self.count, _CHUNK_RECORDS):
            yield self._rows(start, min(_CHUNK_RECORDS, self.first + self.count - start))

    def _rows(self, start: int, count: int) -> pa.Table:
        random = np.random.default_rng([start, self.keys])
        lane = np.arange(start, start + count) % KAFKA_PARTITIONS
        number = random.integers(0, self.keys // KAFKA_PARTITIONS, count) * KAFKA_PARTITIONS + lane
        return pa.table(
            {
                "order_id": _numbered("order", pa.array(number)),
                "customer_id": _numbered("customer", pa.array(number * 7919 % 50_000)),
                "region": _REGIONS.take(pa.array(number // KAFKA_PARTITIONS % len(_REGIONS))),
                "status": _STATES.take(pa.array(random.integers(0, len(_STATES), count))),
                "amount": pa.array(random.integers(100, 100_000, count) / 100),
                "quantity": pa.array(random.integers(1, 10, count), pa.int32()),
                "note": _NOTES.take(pa.array(random.integers(0, len(_NOTES), count))),
                "updated_at": pa.array(_EPOCH_MS + start + _almost_sorted(random, count)),
            }
        )


def newest(ranges: list[Orders]) -> pa.Table:
    """What a table must hold after all records: of each order its largest ordering value."""
    rows = pa.concat_tables([chunk for orders in ranges for chunk in orders.chunks()])
    rows = rows.sort_by([(RECORD_KEY, "ascending"), (ORDERING, "descending")])
    keys = rows[RECORD_KEY].combine_chunks()
    is_first = np.ones(len(keys), dtype=bool)
    is_first[1:] = pc.not_equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)
    return rows.filter(pa.array(is_first))


def as_json(rows: pa.Table) -> pa.Array:
    """Each row as one JSON object; none of the texts needs escaping."""
    parts: list[pa.Array | str] = []
    for position, name in enumerate(rows.column_names):
        quote = '"' if pa.types.is_string(rows.schema.field(name).type) else ""
        values = pc.cast(rows[name].combine_chunks(), pa.string())
        parts += [f'{"," if position else "{"}"{name}":{quote}', values, quote]
    return pc.binary_join_element_wise(*parts, "}", "")


def _numbered(word: str, numbers: pa.Array) -> pa.Array:
    digits = pc.utf8_lpad(pc.cast(numbers, pa.string()), width=10, padding="0")
    return pc.binary_join_element_wise(f"{word}-", digits, "")


def _almost_sorted(random: np.random.Generator, count: int) -> np.ndarray:
    """A permutation of 0..count in which one in twenty comes late."""
    delay = np.where(random.random(count) < 0.05, random.integers(0, 50_000, count), 0)
    order = np.empty(count, dtype=np.int64)
    order[np.argsort(np.arange(count) - delay, kind="stable")] = np.arange(count)
    return order
