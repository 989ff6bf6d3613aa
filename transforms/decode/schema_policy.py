"""What happens to records that their schema does not hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from lakemark.errors import InvalidConfig
from lakemark.model.meta_columns import is_reserved
from lakemark.schema.evolution import Path, Proposal, Sighting, dotted

#: Of fields that no column is declared for: leave them out, keep them in the rescue column, make
#: columns of them, turn the record away, stop.
UnknownFields = Literal["ignore", "rescue", "evolve", "reject", "fail"]

#: Of values that fit a wider type than their column's: turn the record away, widen the column, keep
#: the value in the rescue column, stop.
WiderValues = Literal["reject", "evolve", "rescue", "fail"]


@dataclass(frozen=True, slots=True)
class SchemaPolicy:
    """Who gives way where records and schema differ.

    Attributes:
        unknown_fields: None is ``rescue`` where there is a rescue column, and ``ignore`` elsewhere.
        wider_values: what else does not fit is turned away in any case.
        aliases: field to the column that it fills too, for fields that were renamed.
        settled: columns, dotted inside structs, whose type never changes: key, partition, order.
        taken: names of columns that records do not fill, so that no field becomes one of them.
    """

    unknown_fields: UnknownFields | None = None
    wider_values: WiderValues = "reject"
    aliases: Mapping[str, str] = field(default_factory=dict)
    settled: frozenset[str] = frozenset()
    taken: frozenset[str] = frozenset()

    def with_aliases(self, schema: pa.Schema) -> pa.Schema:
        """The columns, and after them, each of its column's type, the aliases.

        Raises:
            InvalidConfig: an alias that is a column, or of a column that is none.
        """
        fields = list(schema)
        for alias, column in self.aliases.items():
            if alias in schema.names:
                message = f"decode.aliases: {alias!r} is a column itself; remove the alias"
                raise InvalidConfig(message)
            if column not in schema.names:
                message = (
                    f"decode.aliases: {alias!r} stands for {column!r}, which is no column "
                    f"({', '.join(schema.names)})"
                )
                raise InvalidConfig(message)
            fields.append(schema.field(column).with_name(alias))
        return pa.schema(fields)

    def as_columns(self, found: Iterable[Sighting]) -> Proposal:
        """Findings under the names of columns instead of their aliases."""
        return frozenset((self._column_path(path), kind) for path, kind in found)

    def is_settled(self, path: Path) -> bool:
        """Whether the type of what stands there never changes; a path by the record's names."""
        if len(path) > 1 and self.wider_values == "evolve":
            # Apache Hudi on Spark refuses nested columns of changed types (vectorized reader).
            return True
        return dotted(self._column_path(path)) in self.settled

    def taken_fault(self, path: Path) -> str | None:
        """Why the name of an unknown field cannot be a column's; case makes no difference."""
        name = path[0]
        is_taken = name.lower() in {taken.lower() for taken in self.taken}
        if len(path) == 1 and (is_taken or is_reserved(name)):
            return f"field {name!r}: a column of that name is not filled from records"
        return None

    def _column_path(self, path: Path) -> Path:
        return (self.aliases.get(path[0], path[0]), *path[1:])
