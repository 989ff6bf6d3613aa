"""``expect``: the rules that judge the rows, and the checks that judge whole batches."""

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
from transforms.batch_checks import BatchCheck
from transforms.expectations import InvalidRule, Outcome, Rule


class RuleConfig(Section):
    """Rules that judge each row before it is written, in this order, and checks that judge a batch.

    Each entry is either a ``rule`` or a ``check``. Deletes are not judged. See [Check
    rows](expectations.md).
    """

    rule: Condition | None = None
    """The condition that each row should fulfil, as in ``lakemark query --where``: ``amount >= 0``.
    It names columns of the table. A row violates the rule if the condition is false, but not if it
    is null; ``amount is not null and amount >= 0`` also refuses nulls."""

    name: Annotated[str, Field(min_length=1)] = ""
    """The name in messages, commits and metrics. Default: the text of the rule or check."""

    otherwise: Literal["warn", "set_null", "dead_letter", "fail"]
    """What happens to rows that violate the rule. ``warn`` counts and reports them. ``set_null``
    sets a column to null. ``dead_letter`` sends the record to the dead letters. ``fail`` stops the
    run before anything of the batch is published. The rows are counted in each case. A check has
    only ``warn`` and ``fail``."""

    column: Annotated[str, Field(min_length=1)] | None = None
    """The column that ``set_null`` sets to null. Default: the column of the rule, if it names only
    one."""

    check: Annotated[str, Field(min_length=1)] | None = None
    """A query in SQL that judges the whole batch before it is published, and should return no rows,
    such as ``select id from batch group by id having count(*) > 1``. ``batch`` has the rows of the
    batch, and ``stored`` those of the table before it. It needs ``lakemark[sql]``. See [Check
    batches](expectations.md#check-batches)."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, given: object) -> object:
        text = (given.get("rule") or given.get("check")) if isinstance(given, Mapping) else None
        return {"name": text, **given} if isinstance(given, Mapping) and text else given

    @property
    def condition(self) -> str:
        """The condition of a rule; "" for a check."""
        return self.rule or ""

    @property
    def nulled_column(self) -> str | None:
        """The column that is set to null; None if the rule does not say which one."""
        if self.column is not None:
            return self.column
        columns = condition_columns(self.condition)
        return columns[0] if len(columns) == 1 and "." not in columns[0] else None


Rules = Annotated[tuple[RuleConfig, ...], FromList]


def build_rules(rules: Sequence[RuleConfig]) -> tuple[Rule, ...]:
    """Return the rules of a pipeline."""
    return tuple(
        _build_rule(position, one) for position, one in enumerate(rules) if one.check is None
    )


def build_checks(rules: Sequence[RuleConfig]) -> tuple[BatchCheck, ...]:
    """Return the checks of a pipeline."""
    return tuple(
        _build_check(position, one.check, one)
        for position, one in enumerate(rules)
        if one.check is not None
    )


def expect_problems(
    source: AnySource,
    decode: DecodeConfig,
    table: TableConfig,
    steps: Sequence[AnyStep],
    dead_letters: DeadLettersConfig,
    rules: Sequence[RuleConfig],
) -> Iterator[Problem]:
    """Yield a problem for each rule or check that cannot judge rows, and for meaningless settings.

    If the columns are not known yet, a run checks the rules when it starts; only the syntax of
    checks is checked before.
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
    for position, rule in enumerate(rules):
        problem = _contradiction(rule, dead_letters)
        if rule.name in names:
            problem = ("name", f"{rule.name!r} is the name of another rule; choose another name")
        names.add(rule.name)
        if problem is not None:
            yield Problem(f"expect.{position}.{problem[0]}", problem[1])
            continue
        try:
            if rule.check is not None:
                _build_check(position, rule.check, rule).check(columns)
            elif columns is not None:
                _build_rule(position, rule).check(columns, required)
        except InvalidRule as error:
            yield Problem(error.setting, error.reason)


def _build_check(position: int, query: str, rule: RuleConfig) -> BatchCheck:
    outcome = Outcome(rule.otherwise)
    return BatchCheck(path=f"expect.{position}", name=rule.name, query=query, outcome=outcome)


def _build_rule(position: int, rule: RuleConfig) -> Rule:
    outcome = Outcome(rule.otherwise)
    return Rule(
        path=f"expect.{position}",
        name=rule.name,
        condition=rule.condition,
        outcome=outcome,
        column=(rule.nulled_column or "") if outcome is Outcome.SET_NULL else "",
    )


def _contradiction(rule: RuleConfig, dead_letters: DeadLettersConfig) -> tuple[str, str] | None:
    """Return a setting of a rule that contradicts another setting, and the reason."""
    if rule.rule is None and rule.check is None:
        return "rule", "missing; each entry is a rule for rows, or a check of a batch"
    if rule.check is not None:
        return _contradiction_of_check(rule)
    if rule.otherwise != "set_null" and rule.column is not None:
        return "column", f"{rule.column} has an effect only with otherwise: set_null; remove it"
    if rule.otherwise == "set_null" and rule.nulled_column is None:
        columns = ", ".join(condition_columns(rule.condition))
        return "column", f"missing; the rule names {columns}, so name the column to set to null"
    if rule.otherwise == "dead_letter" and not dead_letters.enabled:
        text = "dead_letter needs dead_letters.enabled; enable them, or use otherwise: fail"
        return "otherwise", text
    return None


def _contradiction_of_check(rule: RuleConfig) -> tuple[str, str] | None:
    if rule.rule is not None:
        return "check", "an entry is either a rule or a check; write two entries"
    if rule.otherwise not in ("warn", "fail"):
        text = f"{rule.otherwise} is for single rows, but a check judges a batch; use warn or fail"
        return "otherwise", text
    if rule.column is not None:
        return "column", f"{rule.column} has an effect only with a rule; remove it"
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
