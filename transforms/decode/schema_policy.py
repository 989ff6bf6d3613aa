"""What happens to records that their schema does not hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from table.errors import InvalidConfig

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
