"""Converts raw records to changes of the table, or to rejects if this is not possible.

The input is one table of raw records (``transforms.raw_records``). Invariants:

- Each record becomes exactly one change or one reject, except for ignored tombstones.
- Changes are sorted by partition and offset (then topic), whatever the order of the batch.
- The columns of the result depend only on the configuration.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from transforms.change_builder import ChangeBuilder
from transforms.conversion_config import ConversionConfig
from transforms.converted_batch import ConvertedBatch
from transforms.raw_records import FAULT, sort_by_arrival
from transforms.reject_reason import RejectCode, RejectReason
from transforms.rejects import Rejects, Stage


@dataclass(frozen=True)
class RecordConverter(ConversionConfig):
    """Converts batches of raw records, as configured."""

    def __call__(self, records: pa.Table) -> ConvertedBatch:
        """Convert a batch of records. Invalid records become rejects and cause no errors."""
        if FAULT in records.column_names:
            return self._reject_files(records)
        batch = ChangeBuilder(self, sort_by_arrival(records))
        batch.read_values()
        batch.read_tombstones()
        return batch.finish()

    def _reject_files(self, faults: pa.Table) -> ConvertedBatch:
        """Reject the rest of files that cannot be read."""
        texts = faults.column(FAULT).to_pylist()
        reasons = [RejectReason(RejectCode.UNREADABLE_FILE, text) for text in texts]
        indices = np.arange(faults.num_rows, dtype=np.int64)
        return ConvertedBatch(
            changes=self.changes_schema.empty_table(),
            rejects=Rejects.from_records(faults, indices, reasons, Stage.DECODE, self.topic),
            arrivals=indices[:0],
        )
