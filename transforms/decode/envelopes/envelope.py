"""The interface of envelopes: events that contain rows and what happened to them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pyarrow as pa

from lakemark.schema.evolution import Path
from transforms.decode.decode_result import Indices
from transforms.decode.envelopes.event_fields import FieldTypes
from transforms.decode.value_encoding import PLAIN, ValueEncoding
from transforms.reject_reason import RejectReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Unwrapped:
    """The rows of some events. Each event has rows, or is rejected, or is filtered.

    Attributes:
        rows: the columns of the rows, then the columns of the envelope, then ``IS_DELETED``.
        origins: for each row, the index of its event, ascending. An event may have several rows.
        rejected: the reason for each event without a row, by its index.
        filtered: the indices of the events that change no row on purpose.
    """

    rows: pa.Table
    origins: Indices
    rejected: Mapping[int, RejectReason] = field(default_factory=dict)
    filtered: Indices = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope(ABC):
    """How an event contains rows. A value without state, which can be pickled.

    Attributes:
        encoding: how the values of the rows are encoded.
        key_columns: the columns of the record key and of the partition, with dotted names for
            fields of structs. An update that changes one of them also deletes the former row.
    """

    #: The fields of the event that can become columns, and by which events can be filtered.
    field_types: ClassVar[FieldTypes] = {}
    #: Whether the event says if a row is deleted.
    marks_deletes: ClassVar[bool] = True

    encoding: ValueEncoding = PLAIN
    key_columns: tuple[str, ...] = ()

    @property
    @abstractmethod
    def columns(self) -> pa.Schema:
        """The columns that the envelope adds to those of the row."""

    @property
    def former_path(self) -> Path | None:
        """The path of the struct in the event that has the values before a change, if any."""
        return None

    @property
    @abstractmethod
    def row_paths(self) -> tuple[Path, ...]:
        """The paths of the structs in the event that have the fields of a row."""

    @abstractmethod
    def event_schema(self, row: pa.Schema) -> pa.Schema:
        """Return the fields of the event to decode.

        Args:
            row: the fields of a row, with the types in which they are decoded.
        """

    @abstractmethod
    def unwrap(
        self, events: pa.Table, values: pa.Array | pa.ChunkedArray | None = None
    ) -> Unwrapped:
        """Return the rows of events.

        Args:
            events: the fields of ``event_schema``, each of one chunk. Any field may be null.
            values: the JSON texts of the events; None if they are not JSON.
        """
