"""``expect``: the rules that judge the rows before they are written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal

import pyarrow as pa
from pydantic import Field, model_validator

from lakemark.errors import InvalidConfig
from lakemark.keygen.partition_expressions import with_expression_columns
from lakemark.model.meta_columns import IS_DELETED, OPERATION
from lakemark.read.where import condition_columns
from streamer.config.any_source import AnySource
from streamer.config.decode import DecodeConfig
from streamer.config.errors import Problem
from streamer.config.run import DeadLettersConfig
from streamer.config.section import Condition, FromList, Section
from streamer.config.table import TableConfig
from streamer.config.transform import AnyStep
from streamer.config.transform_checks import row_columns
from transforms.expectations import InvalidRule, Outcome, Rule


class RuleConfig(Section):
    """Rules that judge each row before it is written, in this order. Deletes are not judged.

    See [Check rows](expectations.md).
    """

    rule: Condition
    """The condition that each row should fulfil, as in ``lakemark query --where``: ``amount >= 0``.
    It names columns of the table. A row violates the rule if the condition is false, but not if it
    is null; ``amount is not null and amount >= 0`` also refuses nulls."""

    name: Annotated[str, Field(min_length=1)] = ""
    """The name of the rule in messages, commits and metrics. Default: the text of the rule."""

    otherwise: Literal["warn", "set_null", "dead_letter", "fail"]
    """What happens to rows that violate the rule. ``warn`` counts and reports them. ``set_null``
    sets a column to null. ``dead_letter`` sends the record to the dead letters. ``fail`` stops the
    run before anything of the batch is published. The rows are counted in each case."""

    column: Annotated[str, Field(min_length=1)] | None = None
    """The column that ``set_null`` sets to null. Default: the column of the rule, if it names only
    one."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, given: object) -> object:
        if isinstance(given, Mapping) and isinstance(given.get("rule"), str):
            return {"name": given["rule"], **given}
        return given

    @property
    def nulled_column(self) -> str | None:
        """The column that is set to null; None if the rule does not say which one."""
        if self.column is not None:
            return self.column
        columns = condition_columns(self.rule)
        return columns[0] if len(columns) == 1 and "." not in columns[0] else None


Rules = Annotated[tuple[RuleConfig, ...], FromList]


def build_rules(rules: Sequence[RuleConfig]) -> tuple[Rule, ...]:
    """Return the rules of a pipeline."""
    return tuple(_build(position, rule) for position, rule in enumerate(rules))


def expect_problems(
    source: AnySource,
    decode: DecodeConfig,
    table: TableConfig,
    steps: Sequence[AnyStep],
    dead_letters: DeadLettersConfig,
    rules: Sequence[RuleConfig],
) -> Iterator[Problem]:
    """Yield a problem for each rule that cannot judge the rows, and for a setting without meaning.

    If the columns are not known yet, a run checks the rules when it starts.
    """
    if not rules:
        return
    if table.partial_update == "absent_fields":
        text = (
            "absent_fields cannot be combined with expect, because rules judge whole rows; remove "
            "one of them"
        )
        yield Problem("table.partial_update", text)
    columns, required = _table_columns(source, decode, table, steps), _required_columns(table)
    names: set[str] = set()
    for built, rule in zip(build_rules(rules), rules, strict=True):
        problem = _contradiction(rule, dead_letters)
        if rule.name in names:
            problem = ("name", f"{rule.name!r} is the name of another rule; choose another name")
        names.add(rule.name)
        if problem is not None:
            yield Problem(f"{built.path}.{problem[0]}", problem[1])
        elif columns is not None:
            try:
                built.check(columns, required)
            except InvalidRule as error:
                yield Problem(error.setting, error.reason)


def _build(position: int, rule: RuleConfig) -> Rule:
    outcome = Outcome(rule.otherwise)
    return Rule(
        path=f"expect.{position}",
        name=rule.name,
        condition=rule.rule,
        outcome=outcome,
        column=(rule.nulled_column or "") if outcome is Outcome.SET_NULL else "",
    )


def _contradiction(rule: RuleConfig, dead_letters: DeadLettersConfig) -> tuple[str, str] | None:
    """Return a setting of a rule that contradicts another setting, and the reason."""
    if rule.otherwise != "set_null" and rule.column is not None:
        return "column", f"{rule.column} has an effect only with otherwise: set_null; remove it"
    if rule.otherwise == "set_null" and rule.nulled_column is None:
        columns = ", ".join(condition_columns(rule.rule))
        return "column", f"missing; the rule names {columns}, so name the column to set to null"
    if rule.otherwise == "dead_letter" and not dead_letters.enabled:
        text = "dead_letter needs dead_letters.enabled; enable them, or use otherwise: fail"
        return "otherwise", text
    return None


def _table_columns(
    source: AnySource, decode: DecodeConfig, table: TableConfig, steps: Sequence[AnyStep]
) -> pa.Schema | None:
    """Return the columns of the table; None if they are not known or not valid."""
    columns = row_columns(decode, steps)
    if columns is None or decode.unknown_fields == "evolve":
        return None
    if decode.rescue_column is not None and not steps:
        columns = columns.append(pa.field(decode.rescue_column, pa.string()))
    for field in source.record_columns:
        columns = columns.append(field)
    try:
        expressions = [one for one in table.partition_fields if one.is_expression]
        return with_expression_columns(columns, expressions)
    except InvalidConfig:  # another check reports the expression
        return None


def _required_columns(table: TableConfig) -> frozenset[str]:
    marker = (table.delete_when.field,) if table.delete_when else ()
    stored = (one.stored_column for one in table.partition_fields)
    named = (*table.record_key, *table.partition_columns, *stored, *table.ordering, *marker)
    return frozenset(name.partition(".")[0] for name in (*named, IS_DELETED, OPERATION))
