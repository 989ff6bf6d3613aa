"""The JSON of Kafka Connect: rows, each with its schema.

``JsonConverter`` writes ``{"schema": …, "payload": row}``, or only the row if its setting
``schemas.enable`` is false. A row has no operation; a record without a value deletes a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from lakemark.schema.evolution import Path
from transforms.decode.envelopes.envelope import Envelope, Unwrapped


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectEnvelope(Envelope):
    """Rows that nothing surrounds, apart from their schema."""

    marks_deletes: ClassVar[bool] = False

    @property
    def columns(self) -> pa.Schema:
        """See ``Envelope``."""
        return pa.schema([])

    @property
    def row_paths(self) -> tuple[Path, ...]:
        """See ``Envelope``."""
        return ((),)

    def event_schema(self, row: pa.Schema) -> pa.Schema:
        """See ``Envelope``."""
        return row

    def unwrap(
        self, events: pa.Table, values: pa.Array | pa.ChunkedArray | None = None
    ) -> Unwrapped:
        """See ``Envelope``."""
        return Unwrapped(rows=events, origins=np.arange(events.num_rows))
