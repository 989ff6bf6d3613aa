"""What records ask of the table's schema, on its way from the workers to the driver."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from lakemark.schema.evolution import NOTHING_PROPOSED, Proposal, kind_named

#: A row for each sighting; the refused record, if there is one, is a row without a path.
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
    """A record that the policy lets nothing follow."""

    topic: str
    partition: int
    offset: int
    reason: str

    def __str__(self) -> str:
        return f"{self.topic} {self.partition}:{self.offset}: {self.reason}"


@dataclass(frozen=True, slots=True)
class SchemaRequest:
    """What the records of a chunk, or of a batch, ask.

    Attributes:
        proposal: what the schema should be able to hold.
        refused: the first record that must stop the run.
    """

    proposal: Proposal = NOTHING_PROPOSED
    refused: RefusedRecord | None = None

    def __bool__(self) -> bool:
        return bool(self.proposal) or self.refused is not None

    @classmethod
    def merged(cls, requests: Iterable[SchemaRequest]) -> SchemaRequest:
        """All of them in one, whatever their order."""
        listed = list(requests)
        proposal = NOTHING_PROPOSED.union(*(request.proposal for request in listed))
        refused = [request.refused for request in listed if request.refused is not None]
        return cls(proposal, min(refused, default=None))

    def to_table(self) -> pa.Table:
        """The request in ``REQUEST_SCHEMA``."""
        rows: list[dict[str, object]] = [
            {"path": list(path), "kind": str(kind)} for path, kind in sorted(self.proposal)
        ]
        if self.refused is not None:
            names = ("topic", "partition", "offset", "reason")
            rows.append({name: getattr(self.refused, name) for name in names})
        return pa.Table.from_pylist(rows, REQUEST_SCHEMA)

    @classmethod
    def of(cls, table: pa.Table) -> SchemaRequest:
        """The request that ``to_table`` wrote."""
        sightings, refused = [], None
        for row in table.to_pylist():
            path, kind = row.pop("path"), row.pop("kind")
            if path is None:
                refused = RefusedRecord(**row)
            else:
                sightings.append((tuple(path), kind_named(kind)))
        return cls(frozenset(sightings), refused)
