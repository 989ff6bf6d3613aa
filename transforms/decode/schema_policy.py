"""How the decoder handles records that do not match the schema of the table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from lakemark.errors import InvalidConfig
from lakemark.model.meta_columns import is_reserved
from lakemark.schema.evolution import Path, Proposal, Sighting, dotted
from transforms.reject_reason import RejectCode, RejectReason

#: What to do with fields without a column: ignore them, keep them in the rescue column, add columns
#: for them, reject the record, or stop the run.
UnknownFields = Literal["ignore", "rescue", "evolve", "reject", "fail"]

#: What to do with values that only fit a wider type than their column's: reject the record, widen
#: the column, keep the value in the rescue column, or stop the run.
WiderValues = Literal["reject", "evolve", "rescue", "fail"]


def undeclared_reason(name: str, unknown_fields: UnknownFields) -> RejectReason:
    """Return why a record with an unknown field is rejected, or stops the run.

    Args:
        name: the dotted name of the field.
        unknown_fields: what to do with such fields.
    """
    text = f"field {name!r} is not declared, and decode.unknown_fields is {unknown_fields}"
    return RejectReason(RejectCode.UNKNOWN_FIELD, text, name)


@dataclass(frozen=True, slots=True)
class SchemaPolicy:
    """How the decoder handles differences between records and the schema.

    Attributes:
        unknown_fields: what to do with fields without a column; None means ``rescue`` if there is a
            rescue column, and otherwise ``ignore``.
        wider_values: what to do with values that only fit a wider type. Values that fit no wider
            type are always rejected.
        aliases: for each name of a renamed field, the column that the field fills.
        fixed_types: the columns (dotted names inside structs) whose type never changes: those of
            the record key, the partition path and the ordering.
        reserved_names: the columns that records do not fill. No unknown field may become such a
            column.
        row_paths: the paths of the structs whose fields are columns, if each record is an event
            that contains rows. All other unknown fields of the event are ignored. Empty if the
            fields of the record itself are columns.
    """

    unknown_fields: UnknownFields | None = None
    wider_values: WiderValues = "reject"
    aliases: Mapping[str, str] = field(default_factory=dict)
    fixed_types: frozenset[str] = frozenset()
    reserved_names: frozenset[str] = frozenset()
    row_paths: tuple[Path, ...] = ()

    def with_aliases(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns, followed by the aliases with the types of their columns.

        Raises:
            InvalidConfig: an alias is itself a column, or its column does not exist.
        """
        fields = list(schema)
        for alias, column in self.aliases.items():
            if alias in schema.names:
                message = f"decode.aliases: {alias!r} is a column itself; remove the alias"
                raise InvalidConfig(message)
            if column not in schema.names:
                message = (
                    f"decode.aliases: {alias!r} is an alias of {column!r}, but there is no such "
                    f"column; use one of {', '.join(schema.names)}"
                )
                raise InvalidConfig(message)
            fields.append(schema.field(column).with_name(alias))
        return pa.schema(fields)

    def to_columns(self, found: Iterable[Sighting]) -> Proposal:
        """Replace the paths of fields in the record by the paths of their columns."""
        return frozenset((self._column_path(path), kind) for path, kind in found)

    def is_ignored(self, path: Path) -> bool:
        """Return whether an unknown field at a path belongs to the event, and not to a row."""
        return bool(self.row_paths) and self._row_path(path) is None

    def has_fixed_type(self, path: Path) -> bool:
        """Return whether the column at a path, in the record's names, never changes its type."""
        if self.is_ignored(path):
            return True
        column_path = self._column_path(path)
        if len(column_path) > 1 and self.wider_values == "evolve":
            # Apache Hudi's vectorized reader on Spark refuses nested columns of changed types.
            return True
        return dotted(column_path) in self.fixed_types

    def reserved_name_fault(self, path: Path) -> str | None:
        """Return why a reserved name keeps an unknown field from becoming a column, or None."""
        path = self._column_path(path)
        name = path[0]
        is_used = name.lower() in {reserved.lower() for reserved in self.reserved_names}
        if len(path) == 1 and (is_used or is_reserved(name)):
            return f"field {name!r}: a column of that name is not filled from records"
        return None

    def _row_path(self, path: Path) -> Path | None:
        """Return a path within the row; None if it is not the path of a field of a row."""
        for outer in self.row_paths:
            if len(path) > len(outer) and path[: len(outer)] == outer:
                return path[len(outer) :]
        return None

    def _column_path(self, path: Path) -> Path:
        path = self._row_path(path) or path
        return (self.aliases.get(path[0], path[0]), *path[1:])
