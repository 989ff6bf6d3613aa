"""Generates random versions of records, with which ``check_merger`` checks a merger."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from lakemark.errors import InvalidConfig
from lakemark.model.changes import CHANGE_KIND_FIELD, ChangeKind
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.schema.field_path import column_at

#: The values that each column may have, in ascending order if the type has an order.
Pools: TypeAlias = Mapping[str, Sequence[object]]

_DAY = dt.date(2024, 1, 1)
_MOMENT = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)

#: The kinds of versions (upsert, delete with data, delete without data) and their probabilities.
_KINDS = (ChangeKind.UPSERT, ChangeKind.FLAGGED_DELETE, ChangeKind.DELETE)
_KIND_ODDS = (0.7, 0.15, 0.15)
_NULL_ODDS = 0.25


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a record.

    Attributes:
        values: the values by column. A delete without data has only its ordering columns.
        kind: upsert, delete with data, or delete without data.
    """

    values: Mapping[str, object]
    kind: ChangeKind

    def __str__(self) -> str:
        word = "upsert" if self.kind is ChangeKind.UPSERT else "delete"
        return f"{word} {dict(self.values)}"


@dataclass(frozen=True)
class Examples:
    """Generates versions of records of one table.

    Attributes:
        schema: the table's columns without meta columns.
        ordering_fields: ordering fields. Generated ordering values are never null.
        pools: the possible values of each column.
    """

    schema: pa.Schema
    ordering_fields: tuple[str, ...]
    pools: Pools

    @classmethod
    def of(cls, schema: pa.Schema, ordering_fields: Sequence[str], given: Pools) -> Examples:
        """Return a generator with the given values, and with default values for other columns.

        Raises:
            InvalidConfig: a given column or value does not fit the schema, or there are no default
                values for the type of a column.
        """
        for name in ordering_fields:
            column_at(schema.empty_table(), name)
        _check_given(schema, given)
        pools = {f.name: list(given.get(f.name) or _default_values(f.type, f.name)) for f in schema}
        return cls(schema, tuple(ordering_fields), pools)

    def draw(self, random: np.random.Generator, count: int) -> list[Version]:
        """Draw random versions of one record, oldest first."""
        return [self._draw_version(random) for _ in range(count)]

    def table(self, versions: Sequence[Version], keys: Sequence[str]) -> pa.Table:
        """Return a table of changes: the ``i``-th version is a change to the ``i``-th key."""
        columns = [pa.array(keys, pa.string())]
        for field in self.schema:
            values = [version.values.get(field.name) for version in versions]
            columns.append(pa.array(values, field.type))
        kinds = pa.array([version.kind for version in versions], pa.int8())
        key = pa.field(RECORD_KEY, pa.string())
        schema = pa.schema([key, *self.schema, CHANGE_KIND_FIELD])
        return pa.table([*columns, kinds], schema=schema)

    def simplify(self, versions: Sequence[Version]) -> Iterator[list[Version]]:
        """Yield all examples that are one step simpler.

        A step replaces one value by null or the first value of its column, or turns a delete with
        data into an upsert.
        """
        for position, version in enumerate(versions):
            for easier in self._simplify(version):
                yield [*versions[:position], easier, *versions[position + 1 :]]

    def _simplify(self, version: Version) -> Iterator[Version]:
        if version.kind is ChangeKind.FLAGGED_DELETE:
            yield replace(version, kind=ChangeKind.UPSERT)
        for name, value in version.values.items():
            least = None if self._may_be_null(name) else self.pools[name][0]
            if value is not None and value != least:
                yield replace(version, values={**version.values, name: least})

    def _draw_version(self, random: np.random.Generator) -> Version:
        kind = _KINDS[int(random.choice(len(_KINDS), p=_KIND_ODDS))]
        names = self._ordering_columns if kind is ChangeKind.DELETE else self.schema.names
        return Version({name: self._draw_value(name, random) for name in names}, kind)

    def _draw_value(self, name: str, random: np.random.Generator) -> object:
        if self._may_be_null(name) and random.random() < _NULL_ODDS:
            return None
        pool = self.pools[name]
        return pool[int(random.integers(len(pool)))]

    def _may_be_null(self, name: str) -> bool:
        return self.schema.field(name).nullable and name not in self._ordering_columns

    @property
    def _ordering_columns(self) -> list[str]:
        names = self.schema.names
        return [n if n in names else n.split(".")[0] for n in self.ordering_fields]


def _check_given(schema: pa.Schema, given: Pools) -> None:
    for name, pool in given.items():
        if name not in schema.names:
            message = (
                f"values={{{name!r}: …}}: the schema has no such column; it has {schema.names}"
            )
            raise InvalidConfig(message)
        kind = schema.field(name).type
        try:
            pa.array(list(pool), kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            message = f"values={{{name!r}: {pool!r}}}: column {name} is {kind} ({error})"
            raise InvalidConfig(message) from error


def _default_values(kind: pa.DataType, name: str) -> list[object]:
    """Return two or three values of a type.

    No value is the number 0, because Hudi treats 0 as "no ordering value".
    """
    if pa.types.is_boolean(kind):
        return [False, True]
    if pa.types.is_integer(kind):
        return [1, 2, 3]
    if pa.types.is_floating(kind):
        return [0.5, 1.0, 2.5]
    if pa.types.is_decimal(kind):
        return [Decimal(n).scaleb(-kind.scale) for n in (1, 2, 3)]
    if pa.types.is_date(kind):
        return [_DAY + dt.timedelta(days=n) for n in range(3)]
    if pa.types.is_timestamp(kind):
        start = _MOMENT if kind.tz else _MOMENT.replace(tzinfo=None)
        return [start + dt.timedelta(seconds=n) for n in range(3)]
    if pa.types.is_time(kind):
        return [dt.time(n) for n in (1, 2, 3)]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return ["a", "b", "c"]
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return [b"a", b"b", b"c"]
    if pa.types.is_fixed_size_binary(kind):
        return [bytes([n]) * kind.byte_width for n in (1, 2, 3)]
    return _nested_default_values(kind, name)


def _nested_default_values(kind: pa.DataType, name: str) -> list[object]:
    if pa.types.is_struct(kind):
        pools = {field.name: _default_values(field.type, name) for field in kind}
        return [{inner: pool[n % len(pool)] for inner, pool in pools.items()} for n in range(3)]
    if pa.types.is_map(kind):
        pool = _default_values(kind.item_type, name)
        return [[(key, pool[0])] for key in _default_values(kind.key_type, name)]
    if pa.types.is_list(kind):
        pool = _default_values(kind.value_type, name)
        return [[], [pool[0]], [pool[-1], pool[0]]]
    message = f"column {name} is {kind}, which has no default values; pass values={{{name!r}: …}}"
    raise InvalidConfig(message)
