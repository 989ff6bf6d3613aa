"""``transform``: the steps between decoding and record keys. Each kind has its own section."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal

import pyarrow as pa
from pydantic import AfterValidator, Field

from lakemark.errors import InvalidConfig
from streamer.config import settings
from streamer.config.errors import ConfigError, Problem
from streamer.config.section import Columns, Condition, FromList, Section
from streamer.config.settings import Secret, Settings
from transforms.schema_text import parse_type
from transforms.steps.add import Add
from transforms.steps.cast import Cast
from transforms.steps.chain import InvalidStep, TransformChain
from transforms.steps.columns import Drop, Flatten, Rename, Select
from transforms.steps.explode import Explode
from transforms.steps.expression import parse_expression
from transforms.steps.filter import Filter
from transforms.steps.hiding import Hash, Mask
from transforms.steps.plugin import load_transform
from transforms.steps.python_function import PythonFunction
from transforms.steps.sql import Sql
from transforms.steps.transform import Transform

_Name = Annotated[str, Field(min_length=1)]


def _not_empty(names: tuple[str, ...]) -> tuple[str, ...]:
    if not names:
        message = "expected at least one column"
        raise ValueError(message)
    return names


#: At least one column.
_Some = Annotated[Columns, AfterValidator(_not_empty)]


def _check_types(columns: Mapping[str, str]) -> Mapping[str, str]:
    for name, text in columns.items():
        try:
            parse_type(name, text)
        except InvalidConfig as error:
            raise ValueError(str(error)) from None
    return columns


def _check_expressions(columns: Mapping[str, str]) -> Mapping[str, str]:
    for text in columns.values():
        try:
            parse_expression(text)
        except InvalidConfig as error:
            raise ValueError(str(error)) from None
    return columns


class SelectStep(Section):
    """Keeps some columns, in this order."""

    step: Literal["select"]
    """The kind of the step."""

    columns: _Some
    """The columns to keep."""

    def transform(self) -> Transform:
        """Return the step."""
        return Select(self.columns)


class DropStep(Section):
    """Removes columns."""

    step: Literal["drop"]
    """The kind of the step."""

    columns: _Some
    """The columns to remove."""

    def transform(self) -> Transform:
        """Return the step."""
        return Drop(self.columns)


class RenameStep(Section):
    """Renames columns."""

    step: Literal["rename"]
    """The kind of the step."""

    columns: Annotated[Mapping[str, _Name], Field(min_length=1)]
    """The new name of each renamed column: ``{id: order_id}``."""

    def transform(self) -> Transform:
        """Return the step."""
        return Rename(dict(self.columns))


class CastStep(Section):
    """Changes the types of columns. A value that does not fit rejects its record."""

    step: Literal["cast"]
    """The kind of the step."""

    columns: Annotated[Mapping[str, _Name], Field(min_length=1), AfterValidator(_check_types)]
    """The new [type](#types-of-columns) of each column: ``{amount: "decimal(10,2)"}``. Text becomes
    any other plain type; numbers, booleans, dates and timestamps become text; numbers become other
    numbers; dates and timestamps become each other. Text without a UTC offset becomes a timestamp
    in UTC."""

    def transform(self) -> Transform:
        """Return the step."""
        return Cast({name: parse_type(name, text) for name, text in self.columns.items()})


class FlattenStep(Section):
    """Replaces structs by one column for each of their fields, also inside nested structs."""

    step: Literal["flatten"]
    """The kind of the step."""

    columns: Columns = ()
    """The structs to replace. Without this setting, all structs are replaced."""

    separator: Annotated[str, Field(pattern=r"^\w*$")] = "_"
    """The text between the names of struct and field: ``address`` and ``city`` become
    ``address_city``."""

    def transform(self) -> Transform:
        """Return the step."""
        return Flatten(self.columns, self.separator)


class ExplodeStep(Section):
    """Makes one row of each element of an array. The record is still written or rejected whole."""

    step: Literal["explode"]
    """The kind of the step."""

    column: _Name
    """The array, which its elements replace."""

    position: _Name | None = None
    """The name of a new int column for the position of the element in the array, from 0."""

    keep_empty: bool = False
    """Whether a record whose array is null or empty becomes one row with a null element. If not,
    the record is filtered."""

    def transform(self) -> Transform:
        """Return the step."""
        return Explode(self.column, self.position, self.keep_empty)


class FilterStep(Section):
    """Keeps the rows for which a condition is true. The others are counted as filtered."""

    step: Literal["filter"]
    """The kind of the step."""

    where: Condition
    """The condition, as in ``lakemark query --where``: ``status = 'paid' and amount > 100``. A row
    for which the condition is null is not kept."""

    def transform(self) -> Transform:
        """Return the step."""
        return Filter(self.where)


class AddStep(Section):
    """Adds columns, which are computed from the columns before the step."""

    step: Literal["add"]
    """The kind of the step."""

    columns: Annotated[Mapping[str, _Name], Field(min_length=1), AfterValidator(_check_expressions)]
    """The expression of each new column: ``{total: price * quantity}``. The page about
    [transforms](transforms.md#expressions) describes expressions."""

    def transform(self) -> Transform:
        """Return the step."""
        return Add(dict(self.columns))


class HashStep(Section):
    """Replaces values by the SHA-256 of a salt and the value, as 64 hexadecimal digits."""

    step: Literal["hash"]
    """The kind of the step."""

    columns: _Some
    """The columns to hash: text, integers or binary."""

    salt: Secret
    """The secret text before each value: ``{env: NAME}`` or ``{file: PATH}``. Without the salt,
    values that can be guessed can be found by their hashes."""

    def transform(self) -> Transform:
        """Return the step, with its secret.

        Raises:
            ConfigError: the salt cannot be found.
        """
        found = settings.resolve({"salt": self.salt}, "transform")
        return Hash(self.columns, found["salt"].encode())

    def without_secret(self) -> Transform:
        """Return the step with an empty salt, to compute its columns."""
        return Hash(self.columns, b"")


class MaskStep(Section):
    """Replaces texts by a fixed text."""

    step: Literal["mask"]
    """The kind of the step."""

    columns: _Some
    """The columns to mask; each must hold text."""

    text: str = "***"
    """The text that replaces the value."""

    keep_last: Annotated[int, Field(ge=0)] = 0
    """How many characters at the end stay readable. A value that is not at least twice as long is
    replaced completely."""

    def transform(self) -> Transform:
        """Return the step."""
        return Mask(self.columns, self.text, self.keep_last)


class PythonStep(Section):
    """Calls a function of a Python file with the rows as a ``pyarrow.Table``.

    The function returns a table with as many rows, in the same order. It is also called with a
    table without rows, before the run starts, to find its columns. If it raises an error, the rows
    for which it also fails alone go to the dead letters.
    """

    step: Literal["python"]
    """The kind of the step."""

    function: Annotated[str, Field(pattern=r"^.+\.py:\w+$")]
    """``FILE.py:function``, with the path relative to the folder of the pipeline file. The driver
    sends the file to the executors. It may import installed modules only."""

    def transform(self) -> Transform:
        """Return the step.

        Raises:
            InvalidConfig: the file cannot be read or imported, or has no such function.
        """
        return PythonFunction.read(self.function)


class SqlStep(Section):
    """Runs an SQL query that makes at most one row of each record, in DuckDB.

    It needs the [extra](../README.md#install) ``sql`` for the driver and for every executor.
    """

    step: Literal["sql"]
    """The kind of the step."""

    query: _Name
    """``select … from records where …``, or ``{file: PATH}`` with a path relative to the folder of
    the pipeline file. Aggregates, windows, joins, subqueries, ``order by`` and ``limit`` are
    refused. Records that ``where`` drops are counted as filtered."""

    def transform(self) -> Transform:
        """Return the step."""
        return Sql(self.query)


class PluginStep(Section):
    """Runs a step of another package, which declares an entry point in ``lakemark.transforms``."""

    step: Literal["plugin"]
    """The kind of the step."""

    name: _Name
    """The name of the entry point."""

    settings: Settings
    """The arguments of the step, as texts, which may be secrets."""

    def transform(self) -> Transform:
        """Return the step, with its secrets.

        Raises:
            ConfigError: a secret cannot be found.
            InvalidConfig: the step is not installed, or refuses its settings.
        """
        return load_transform(self.name, settings.resolve(self.settings, "transform"))

    def without_secret(self) -> Transform:
        """Return the step to compute its columns. A secret that cannot be found is empty.

        Raises:
            InvalidConfig: as for ``transform``.
        """
        missing = {
            name
            for name, setting in self.settings.items()
            if settings.unresolved({name: setting}, "transform")
        }
        found = {n: "" if n in missing else one.resolve() for n, one in self.settings.items()}
        return load_transform(self.name, found)


AnyStep = Annotated[
    SelectStep
    | DropStep
    | RenameStep
    | CastStep
    | FlattenStep
    | ExplodeStep
    | FilterStep
    | AddStep
    | HashStep
    | MaskStep
    | PythonStep
    | SqlStep
    | PluginStep,
    Field(discriminator="step"),
]

Steps = Annotated[tuple[AnyStep, ...], FromList]


def build_chain(
    steps: Sequence[AnyStep], columns: pa.Schema, *, with_secrets: bool = True
) -> TransformChain | None:
    """Return the chain of a pipeline; None if it has no steps.

    Args:
        steps: the steps of the pipeline file.
        columns: the columns of the decoded records.
        with_secrets: whether to read the secrets; without them, the chain only has the right
            columns.

    Raises:
        InvalidStep: a step cannot run on the columns before it.
        ConfigError: a secret cannot be found.
    """
    if not steps:
        return None
    transforms = []
    for position, step in enumerate(steps):
        name = f"transform.{position}.{step.step}"
        try:
            transforms.append((name, _transform(step, with_secrets=with_secrets)))
        except ConfigError:
            raise
        except InvalidConfig as error:
            raise InvalidStep(name, str(error)) from error
    return TransformChain.build(transforms, columns, _fingerprint(steps, transforms))


def unresolved_secrets(steps: Sequence[AnyStep]) -> Iterator[Problem]:
    """Yield a problem for each secret of a step that this machine cannot find."""
    for position, step in enumerate(steps):
        if isinstance(step, HashStep):
            yield from settings.unresolved({"salt": step.salt}, f"transform.{position}")
        if isinstance(step, PluginStep):
            yield from settings.unresolved(step.settings, f"transform.{position}.settings")


def _transform(step: AnyStep, *, with_secrets: bool) -> Transform:
    if isinstance(step, HashStep | PluginStep) and not with_secrets:
        return step.without_secret()
    return step.transform()


def _fingerprint(steps: Sequence[AnyStep], transforms: Sequence[tuple[str, Transform]]) -> str:
    """Return a hash of the configuration of the steps. Values of secrets do not change it."""
    trees = [step.model_dump(mode="json") for step in steps]
    for tree, (_, transform) in zip(trees, transforms, strict=True):
        if isinstance(transform, PythonFunction):
            tree["function"] = transform.name
            tree["file"] = hashlib.sha256(transform.file.content).hexdigest()
    return hashlib.sha256(json.dumps(trees, sort_keys=True).encode()).hexdigest()
