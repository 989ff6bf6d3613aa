"""The result of converting a batch of raw Kafka records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from transforms.decode.decode_result import Indices
from transforms.rejects import Rejects
from transforms.schema_request import NO_REQUEST, SchemaRequest
from transforms.violations import NO_VIOLATIONS, Violations


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertedBatch:
    """The result of converting a batch.

    Attributes:
        changes: the changes, in the layout of ``lakemark.model.changes``. ``_hoodie_record_key``
            and ``_hoodie_partition_path`` are filled; the other meta columns are null. Automatic
            record keys are null, too, because they contain the instant of the commit.
        rejects: the records that cannot be applied to the table.
        request: the change of the table's schema that must be made first. The changes and rejects
            are valid only if the request is empty.
        arrivals: for each change, the position of its record in order of arrival, ascending. A
            record that the transforms made several rows of has several changes.
        ignored: the number of tombstones that were ignored, as configured, by partition of the
            topic.
        filtered: the number of records that the transforms dropped on purpose, by partition of the
            topic.
        violations: how many rows violated the rules of ``expect``.
    """

    changes: pa.Table
    rejects: Rejects
    arrivals: Indices
    request: SchemaRequest = NO_REQUEST
    ignored: Mapping[int, int] = field(default_factory=dict)
    filtered: Mapping[int, int] = field(default_factory=dict)
    violations: Violations = NO_VIOLATIONS
