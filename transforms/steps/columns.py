"""Steps that select, drop, rename and flatten columns. The values do not change."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.errors import InvalidConfig
from transforms.steps.transform import Transform, Transformed


def require_columns(schema: pa.Schema, names: Sequence[str]) -> None:
    """Check that columns exist.

    Raises:
        InvalidConfig: there is no such column; the message lists the existing ones.
    """
    for name in names:
        if name not in schema.names:
            near = difflib.get_close_matches(name, schema.names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"columns: {', '.join(schema.names)}"
            message = f"there is no column {name!r} before this step; {hint}"
            raise InvalidConfig(message)


def require_new(schema: pa.Schema, names: Sequence[str]) -> None:
    """Check that no column has one of these names, not even in other case.

    Raises:
        InvalidConfig: a column has this name.
    """
    taken = {name.lower() for name in schema.names}
    for name in names:
        if name.lower() in taken:
            message = (
                f"column {name!r} exists already; choose another name, or rename or drop it before"
            )
            raise InvalidConfig(message)


@dataclass(frozen=True, slots=True)
class Select(Transform):
    """Keeps some columns, in this order.

    Attributes:
        columns: the columns to keep.
    """

    columns: tuple[str, ...]

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        """See ``Transform``."""
        require_columns(schema, self.columns)
        return pa.schema([schema.field(name) for name in self.columns])

    def apply(self, rows: pa.Table) -> Transformed:
        """See ``Transform``."""
        return Transformed(rows=rows.select(self.columns))

    def key_sources(self, column: str, schema: pa.Schema) -> tuple[str, ...]:
        """See ``Transform``."""
        return (column,)


@dataclass(frozen=True, slots=True)
class Drop(Transform):
    """Removes columns.

    Attributes:
        columns: the columns to remove.
    """

    columns: tuple[str, ...]

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        """See ``Transform``."""
        require_columns(schema, self.columns)
        kept = [field for field in schema if field.name not in self.columns]
        if not kept:
            message = "no column would be left; keep at least the record key"
            raise InvalidConfig(message)
        return pa.schema(kept)

    def apply(self, rows: pa.Table) -> Transformed:
        """See ``Transform``."""
        return Transformed(rows=rows.drop_columns(list(self.columns)))

    def key_sources(self, column: str, schema: pa.Schema) -> tuple[str, ...]:
        """See ``Transform``."""
        return (column,)


@dataclass(frozen=True, slots=True)
class Rename(Transform):
    """Renames columns. Two columns may exchange their names.

    Attributes:
        columns: the new name of each renamed column.
    """

    columns: Mapping[str, str]

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        """See ``Transform``."""
        require_columns(schema, list(self.columns))
        kept = [field for field in schema if field.name not in self.columns]
        require_new(pa.schema(kept), list(self.columns.values()))
        return pa.schema([field.with_name(self._new(field.name)) for field in schema])

    def apply(self, rows: pa.Table) -> Transformed:
        """See ``Transform``."""
        return Transformed(rows=rows.rename_columns([*map(self._new, rows.column_names)]))

    def key_sources(self, column: str, schema: pa.Schema) -> tuple[str, ...]:
        """See ``Transform``."""
        top, dot, rest = column.partition(".")
        old = {new: old for old, new in self.columns.items()}
        return (f"{old.get(top, top)}{dot}{rest}",)

    def _new(self, name: str) -> str:
        return self.columns.get(name, name)


@dataclass(frozen=True, slots=True)
class Flatten(Transform):
    """Replaces structs by one column for each of their fields, also inside nested structs.

    If a struct is null, its fields are null.

    Attributes:
        columns: the structs to replace; empty for all structs.
        separator: the text between the names: ``address`` and ``city`` become ``address_city``.
    """

    columns: tuple[str, ...] = ()
    separator: str = "_"

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        """See ``Transform``."""
        require_columns(schema, self.columns)
        for name in self.columns:
            if not pa.types.is_struct(schema.field(name).type):
                message = f"column {name!r} is {schema.field(name).type}, not a struct; omit it"
                raise InvalidConfig(message)
        found: dict[str, str] = {}
        for name, path, _ in self._leaves(schema):
            if name in found:
                message = (
                    f"{'.'.join(path)} and {found[name]} would both be column {name!r}; "
                    "rename one before, or choose another separator"
                )
                raise InvalidConfig(message)
            found[name] = ".".join(path)
        return pa.schema([pa.field(name, kind) for name, _, kind in self._leaves(schema)])

    def apply(self, rows: pa.Table) -> Transformed:
        """See ``Transform``."""
        columns = {
            name: rows.column(path[0])
            if len(path) == 1
            else pc.struct_field(rows.column(path[0]), path[1:])
            for name, path, _ in self._leaves(rows.schema)
        }
        return Transformed(rows=pa.table(columns))

    def key_sources(self, column: str, schema: pa.Schema) -> tuple[str, ...]:
        """See ``Transform``."""
        paths = {name: ".".join(path) for name, path, _ in self._leaves(schema)}
        top, dot, rest = column.partition(".")
        return (f"{paths[top]}{dot}{rest}",)

    def _leaves(self, schema: pa.Schema) -> Iterator[tuple[str, list[str], pa.DataType]]:
        """Yield the name, the path and the type of each column of the output."""
        for field in schema:
            chosen = field.name in self.columns or not self.columns
            yield from self._of_field([field.name], field.type, flattens=chosen)

    def _of_field(
        self, path: list[str], kind: pa.DataType, *, flattens: bool
    ) -> Iterator[tuple[str, list[str], pa.DataType]]:
        if not flattens or not pa.types.is_struct(kind):
            yield self.separator.join(path), path, kind
            return
        for field in kind:
            yield from self._of_field([*path, field.name], field.type, flattens=True)
