"""Converts raw Kafka records to changes of the table, or to rejects if this is not possible.

The input is one table for each batch: ``key`` and ``value`` (binary), ``partition`` (int32),
``offset`` (int64), ``timestamp``, and optionally ``topic``. Invariants:

- Each record becomes exactly one change or one reject, except for ignored tombstones.
- Changes are sorted by partition and offset (then topic), whatever the order of the batch.
- The columns of the result depend only on the configuration.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from transforms.change_builder import ChangeBuilder, ConvertedBatch
from transforms.conversion_config import ConversionConfig
from transforms.kafka_records import sort_by_arrival


@dataclass(frozen=True)
class RecordConverter(ConversionConfig):
    """Converts batches of raw Kafka records, as configured."""

    def __call__(self, records: pa.Table) -> ConvertedBatch:
        """Convert a batch of records. Invalid records become rejects and cause no errors."""
        batch = ChangeBuilder(self, sort_by_arrival(records))
        batch.read_values()
        batch.read_tombstones()
        return batch.finish()
