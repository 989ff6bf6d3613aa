"""Schema changes that records request. The workers send these requests to the driver."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from lakemark.schema.evolution import NOTHING_PROPOSED, Proposal, kind_named

#: One row for each sighting. If a record is refused, there is one more row, without a path.
REQUEST_SCHEMA = pa.schema(
    [
        pa.field("path", pa.list_(pa.string())),
        pa.field("kind", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("reason", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True, order=True)
class RefusedRecord:
    """A record at which the schema policy stops the run."""

    topic: str
    partition: int
    offset: int
    reason: str

    def __str__(self) -> str:
        return f"{self.topic} {self.partition}:{self.offset}: {self.reason}"


@dataclass(frozen=True, slots=True)
class SchemaRequest:
    """The schema change that the records of a chunk, or of a batch, request.

    Attributes:
        proposal: the values that the schema should be able to hold.
        refused: the first record that must stop the run; None if there is none.
    """

    proposal: Proposal = NOTHING_PROPOSED
    refused: RefusedRecord | None = None

    def __bool__(self) -> bool:
        return bool(self.proposal) or self.refused is not None

    @classmethod
    def merge(cls, requests: Iterable[SchemaRequest]) -> SchemaRequest:
        """Combine requests. Their order makes no difference."""
        listed = list(requests)
        proposal = NOTHING_PROPOSED.union(*(request.proposal for request in listed))
        refused = [request.refused for request in listed if request.refused is not None]
        return cls(proposal, min(refused, default=None))

    def to_table(self) -> pa.Table:
        """Return the request as a table with the columns of ``REQUEST_SCHEMA``."""
        rows: list[dict[str, object]] = [
            {"path": list(path), "kind": str(kind)} for path, kind in sorted(self.proposal)
        ]
        if self.refused is not None:
            names = ("topic", "partition", "offset", "reason")
            rows.append({name: getattr(self.refused, name) for name in names})
        return pa.Table.from_pylist(rows, REQUEST_SCHEMA)

    @classmethod
    def from_table(cls, table: pa.Table) -> SchemaRequest:
        """Read the request from a table that ``to_table`` returned."""
        sightings, refused = [], None
        for row in table.to_pylist():
            path, kind = row.pop("path"), row.pop("kind")
            if path is None:
                refused = RefusedRecord(**row)
            else:
                sightings.append((tuple(path), kind_named(kind)))
        return cls(frozenset(sightings), refused)


NO_REQUEST = SchemaRequest()
