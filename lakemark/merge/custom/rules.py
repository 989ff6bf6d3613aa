"""The rules of the specification, asked of a user's merger with records made by chance.

For a test of one's own merger:

    def test_my_merger_keeps_the_rules() -> None:
        check_merger(MyMerger(), schema, ordering_fields=["ts"])

The rules ("Record Merger", "Implementation Guidelines"): what comes back is a record of the same
key, with the types of the table; only the operation deletes; ordering values are kept; merging is
associative; and of a vectorised merger, the result of a row does not depend on other rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from lakemark.merge.custom.adapter import custom_record_merger
from lakemark.merge.custom.custom_merger import CustomMerger
from lakemark.merge.custom.examples import Examples, Version
from lakemark.merge.custom.loading import check_strategy
from lakemark.merge.custom.vector_merger import VectorMerger
from lakemark.merge.record_merger import RecordMerger
from lakemark.model.changes import CHANGE_KIND, ChangeKind
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.schema.field_path import column_at

DEFAULT_EXAMPLES = 100

_RESULT = "a record of the same key and of the table's types comes back"

#: Records that a vectorised merger is given at once.
_ROWS_AT_ONCE = 20


class BrokenRule(AssertionError):
    """A merger breaks a rule.

    Attributes:
        rule: which.
        versions: the smallest versions of a record that were found to show it, oldest first.
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
    """Pass a merger that keeps the rules, as far as examples show it.

    Args:
        merger: the user's.
        schema: the table's own columns.
        ordering_fields: the table's.
        values: for columns whose values mean something to the merger, the ones to try; ascending
            for ordering fields. Other columns get three values each, and null where it may be.
        examples: how many are tried for each rule.
        seed: makes them; the same one makes the same.

    Raises:
        BrokenRule: with the smallest example that was found.
        InvalidConfig: it has no strategy id, ``ordering_fields`` or ``values`` do not fit the
            schema, or of some column no values are known.
    """
    check_strategy(merger)
    made = Examples.of(schema, ordering_fields, values or {})
    asked = _Asked(merger.name, made, custom_record_merger(merger, ordering_fields))
    random = np.random.default_rng(seed)
    for rule, check, count in _RULES:
        for _ in range(examples):
            _check(asked, rule, check, made.draw(random, count))
    if isinstance(merger, VectorMerger):
        for _ in range(-(-examples // _ROWS_AT_ONCE)):
            _check_independence(asked, [made.draw(random, 2) for _ in range(_ROWS_AT_ONCE)])


@dataclass(frozen=True, slots=True)
class _Asked:
    """A merger with the examples of its table."""

    name: str
    examples: Examples
    merger: RecordMerger

    def table(self, version: Version) -> pa.Table:
        return self.examples.table([version], ["key"])

    def merge(self, older: pa.Table, newer: pa.Table) -> pa.Table:
        return self.merger.fold(pa.concat_tables([older, newer]))


#: What an example shows against a rule; None where it keeps it.
_Check: TypeAlias = Callable[[_Asked, Sequence[Version]], str | None]


def _check(asked: _Asked, rule: str, check: _Check, versions: list[Version]) -> None:
    """Pass an example, or tell of the smallest one that fails in the same way."""
    if (fault := _fault(asked, rule, check, versions)) is None:
        return
    while True:
        for simpler in asked.examples.simpler(versions):
            still = _fault(asked, rule, check, simpler)
            if still is not None and still[0] == fault[0]:
                versions, fault = simpler, still
                break
        else:
            raise BrokenRule(asked.name, fault[0], versions, fault[1])


def _fault(
    asked: _Asked, rule: str, check: _Check, versions: Sequence[Version]
) -> tuple[str, str] | None:
    """The rule that is broken, and what is seen of it."""
    try:
        seen = check(asked, versions)
    except Exception as error:  # What the merger raises, or the adapter of what comes back.
        return _RESULT, f"  {type(error).__name__}: {error}"
    return None if seen is None else (rule, seen)


def _check_result(asked: _Asked, versions: Sequence[Version]) -> str | None:
    """The adapter refuses what cannot be taken."""
    asked.merge(*map(asked.table, versions))
    return None


def _check_deletes(asked: _Asked, versions: Sequence[Version]) -> str | None:
    older, newer = map(asked.table, versions)
    merged = asked.merge(older, newer)
    ordering = {name.split(".")[0] for name in asked.examples.ordering_fields}
    names = [name for name in asked.examples.schema.names if name not in ordering]
    was_empty = any(v.kind is ChangeKind.UPSERT and _is_empty(v.values, names) for v in versions)
    row = merged.to_pylist()[0]
    if names and _is_upsert(row) and _is_empty(row, names) and not was_empty:
        return f"  merge(a, b) = {_text(row)}: an upsert without any data"
    return None


def _check_ordering(asked: _Asked, versions: Sequence[Version]) -> str | None:
    older, newer = map(asked.table, versions)
    merged = asked.merge(older, newer)
    fields = asked.examples.ordering_fields
    found, *given = (
        [column_at(rows, name).to_pylist() for name in fields] for rows in (merged, older, newer)
    )
    if found in given:
        return None
    return f"  merge(a, b) = {_text(merged.to_pylist()[0])}: the ordering value of neither"


def _check_associativity(asked: _Asked, versions: Sequence[Version]) -> str | None:
    a, b, c = map(asked.table, versions)
    left = asked.merge(asked.merge(a, b), c).to_pylist()[0]
    right = asked.merge(a, asked.merge(b, c)).to_pylist()[0]
    if _content(left) == _content(right):
        return None
    return f"  merge(merge(a, b), c) = {_text(left)}\n  merge(a, merge(b, c)) = {_text(right)}"


_RULES: tuple[tuple[str, _Check, int], ...] = (
    (_RESULT, _check_result, 2),
    ("only the operation deletes", _check_deletes, 2),
    ("the ordering value is kept", _check_ordering, 2),
    ("merging is associative", _check_associativity, 3),
)


def _check_independence(asked: _Asked, pairs: Sequence[Sequence[Version]]) -> None:
    """Each record alone, against all of them at once."""
    keys = [f"key-{number}" for number in range(len(pairs))]
    older, newer = (asked.examples.table([pair[side] for pair in pairs], keys) for side in (0, 1))
    together = asked.merge(older, newer).to_pylist()
    for number, pair in enumerate(pairs):
        row = slice(number, number + 1)
        alone = asked.merge(older.slice(number, 1), newer.slice(number, 1)).to_pylist()
        if _content(alone[0]) != _content(together[row][0]):
            seen = (
                f"  merge(a, b) alone = {_text(alone[0])}\n"
                f"  merge(a, b) as row {number} of {len(pairs)} = {_text(together[number])}"
            )
            rule = "the result of a row does not depend on other rows"
            raise BrokenRule(asked.name, rule, pair, seen)


def _is_upsert(row: Mapping[str, Any]) -> bool:
    return bool(row[CHANGE_KIND] == ChangeKind.UPSERT)


def _is_empty(row: Mapping[str, object], names: Sequence[str]) -> bool:
    return all(row.get(name) is None for name in names)


def _content(row: Mapping[str, Any]) -> tuple[bool, str]:
    """What is compared; as text, since NaN is the same as NaN here."""
    return _is_upsert(row), str({k: v for k, v in row.items() if k != CHANGE_KIND})


def _text(row: Mapping[str, Any]) -> str:
    hidden = (RECORD_KEY, CHANGE_KIND)
    word = "upsert" if _is_upsert(row) else "delete"
    return f"{word} { {k: v for k, v in row.items() if k not in hidden} }"
