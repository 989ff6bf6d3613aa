"""Checks with random records whether a custom merger follows the rules of the specification.

Use ``check_merger`` in a test of your merger:

    def test_my_merger_keeps_the_rules() -> None:
        check_merger(MyMerger(), schema, ordering_fields=["ts"])

The rules of the specification ("Record Merger", "Implementation Guidelines") are:

- The result is a record with the same key and with the types of the table.
- To delete a record, the result has operation ``DELETE``, not null data.
- The result keeps an ordering value.
- Merging is associative.
- The result of a row of a ``VectorMerger`` does not depend on other rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from lakemark.merge.custom.adapter import custom_record_merger
from lakemark.merge.custom.api import CustomMerger, VectorMerger
from lakemark.merge.custom.examples import Examples, Version
from lakemark.merge.custom.load import check_strategy
from lakemark.merge.record_merger import RecordMerger
from lakemark.model.changes import CHANGE_KIND, ChangeKind
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.schema.field_path import column_at

DEFAULT_EXAMPLES = 100

_RESULT = "the result is a record of the same key with the table's types"

#: Number of records that a ``VectorMerger`` gets in one call.
_ROWS_AT_ONCE = 20


class BrokenRule(AssertionError):
    """A merger breaks a rule.

    Attributes:
        rule: the broken rule.
        versions: the simplest versions of a record that were found to break the rule, oldest first.
    """

    def __init__(self, merger: str, rule: str, versions: Sequence[Version], seen: str) -> None:
        names = "abc"[: len(versions)]
        lines = [f"  {name} = {version}" for name, version in zip(names, versions, strict=True)]
        super().__init__("\n".join([f"{merger} breaks a rule: {rule}", *lines, seen]))
        self.rule, self.versions = rule, tuple(versions)


def check_merger(
    merger: CustomMerger,
    schema: pa.Schema,
    ordering_fields: Sequence[str] = (),
    *,
    values: Mapping[str, Sequence[object]] | None = None,
    examples: int = DEFAULT_EXAMPLES,
    seed: int = 0,
) -> None:
    """Check with random examples that a merger follows the rules.

    Args:
        merger: the custom merger.
        schema: the table's columns without meta columns.
        ordering_fields: the table's ordering fields.
        values: the values to try, by column. Pass values for columns that the merger interprets,
            and list the values of ordering fields in ascending order. Other columns get two or
            three default values, and null if they are nullable.
        examples: number of examples for each rule.
        seed: seed of the random examples; the same seed generates the same examples.

    Raises:
        BrokenRule: an example breaks a rule. The error contains the simplest such example found.
        InvalidConfig: the merger has no strategy id, ``ordering_fields`` or ``values`` do not fit
            the schema, or the type of a column has no default values.
    """
    check_strategy(merger)
    made = Examples.of(schema, ordering_fields, values or {})
    checked = _CheckedMerger(merger.name, made, custom_record_merger(merger, ordering_fields))
    random = np.random.default_rng(seed)
    for rule, check, count in _RULES:
        for _ in range(examples):
            _check(checked, rule, check, made.draw(random, count))
    if isinstance(merger, VectorMerger):
        for _ in range(-(-examples // _ROWS_AT_ONCE)):
            _check_independence(checked, [made.draw(random, 2) for _ in range(_ROWS_AT_ONCE)])


@dataclass(frozen=True, slots=True)
class _CheckedMerger:
    """A merger and the examples with which it is checked."""

    name: str
    examples: Examples
    merger: RecordMerger

    def table(self, version: Version) -> pa.Table:
        return self.examples.table([version], ["key"])

    def merge(self, older: pa.Table, newer: pa.Table) -> pa.Table:
        return self.merger.fold(pa.concat_tables([older, newer]))


#: Returns how an example breaks a rule, or None if the example does not break it.
_Check: TypeAlias = Callable[[_CheckedMerger, Sequence[Version]], str | None]


def _check(checked: _CheckedMerger, rule: str, check: _Check, versions: list[Version]) -> None:
    """Check an example. If it breaks a rule, simplify the example and raise ``BrokenRule``."""
    if (fault := _find_fault(checked, rule, check, versions)) is None:
        return
    while True:
        for simpler in checked.examples.simplify(versions):
            still = _find_fault(checked, rule, check, simpler)
            if still is not None and still[0] == fault[0]:
                versions, fault = simpler, still
                break
        else:
            raise BrokenRule(checked.name, fault[0], versions, fault[1])


def _find_fault(
    checked: _CheckedMerger, rule: str, check: _Check, versions: Sequence[Version]
) -> tuple[str, str] | None:
    """Return the broken rule and the observed result; None if the example breaks no rule."""
    try:
        seen = check(checked, versions)
    except Exception as error:  # Raised by the merger, or by the adapter for an invalid result.
        return _RESULT, f"  {type(error).__name__}: {error}"
    return None if seen is None else (rule, seen)


def _check_result(checked: _CheckedMerger, versions: Sequence[Version]) -> str | None:
    """Check the result by merging: the adapter raises an error for an invalid result."""
    checked.merge(*map(checked.table, versions))
    return None


def _check_deletes(checked: _CheckedMerger, versions: Sequence[Version]) -> str | None:
    older, newer = map(checked.table, versions)
    merged = checked.merge(older, newer)
    ordering = {name.split(".")[0] for name in checked.examples.ordering_fields}
    names = [name for name in checked.examples.schema.names if name not in ordering]
    was_empty = any(v.kind is ChangeKind.UPSERT and _is_empty(v.values, names) for v in versions)
    row = merged.to_pylist()[0]
    if names and _is_upsert(row) and _is_empty(row, names) and not was_empty:
        return f"  merge(a, b) = {_format_row(row)}: an upsert without any data"
    return None


def _check_ordering(checked: _CheckedMerger, versions: Sequence[Version]) -> str | None:
    older, newer = map(checked.table, versions)
    merged = checked.merge(older, newer)
    fields = checked.examples.ordering_fields
    found, *given = (
        [column_at(rows, name).to_pylist() for name in fields] for rows in (merged, older, newer)
    )
    if found in given:
        return None
    return f"  merge(a, b) = {_format_row(merged.to_pylist()[0])}: not the ordering value of a or b"


def _check_associativity(checked: _CheckedMerger, versions: Sequence[Version]) -> str | None:
    a, b, c = map(checked.table, versions)
    left = checked.merge(checked.merge(a, b), c).to_pylist()[0]
    right = checked.merge(a, checked.merge(b, c)).to_pylist()[0]
    if _comparable(left) == _comparable(right):
        return None
    return (
        f"  merge(merge(a, b), c) = {_format_row(left)}\n"
        f"  merge(a, merge(b, c)) = {_format_row(right)}"
    )


_RULES: tuple[tuple[str, _Check, int], ...] = (
    (_RESULT, _check_result, 2),
    ("only the operation deletes", _check_deletes, 2),
    ("the ordering value is kept", _check_ordering, 2),
    ("merging is associative", _check_associativity, 3),
)


def _check_independence(checked: _CheckedMerger, pairs: Sequence[Sequence[Version]]) -> None:
    """Check that merging each record alone gives the same results as merging all at once."""
    keys = [f"key-{number}" for number in range(len(pairs))]
    older, newer = (checked.examples.table([pair[side] for pair in pairs], keys) for side in (0, 1))
    together = checked.merge(older, newer).to_pylist()
    for number, pair in enumerate(pairs):
        row = slice(number, number + 1)
        alone = checked.merge(older.slice(number, 1), newer.slice(number, 1)).to_pylist()
        if _comparable(alone[0]) != _comparable(together[row][0]):
            seen = (
                f"  merge(a, b) alone = {_format_row(alone[0])}\n"
                f"  merge(a, b) as row {number} of {len(pairs)} = {_format_row(together[number])}"
            )
            rule = "the result of a row does not depend on other rows"
            raise BrokenRule(checked.name, rule, pair, seen)


def _is_upsert(row: Mapping[str, Any]) -> bool:
    return bool(row[CHANGE_KIND] == ChangeKind.UPSERT)


def _is_empty(row: Mapping[str, object], names: Sequence[str]) -> bool:
    return all(row.get(name) is None for name in names)


def _comparable(row: Mapping[str, Any]) -> tuple[bool, str]:
    """Return the content of a row for comparisons, as text so that NaN equals NaN."""
    return _is_upsert(row), str({k: v for k, v in row.items() if k != CHANGE_KIND})


def _format_row(row: Mapping[str, Any]) -> str:
    hidden = (RECORD_KEY, CHANGE_KIND)
    word = "upsert" if _is_upsert(row) else "delete"
    return f"{word} { {k: v for k, v in row.items() if k not in hidden} }"
