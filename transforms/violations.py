"""Counts the rows that violate the rules of ``expect``. The workers send the counts to the driver.

A commit stores the counts of its batch as JSON, one object for each rule of the pipeline, in order:

::

    [{"rule": "amount >= 0", "otherwise": "warn", "violations": 3}]

The results of the checks of the batch follow (``transforms.batch_checks``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

import pyarrow as pa

from lakemark.errors import Permanent
from transforms.expectations import Outcome, Rule

_BATCH_IS_READ_AGAIN = (
    "nothing of this batch was published; correct the records or the rule, the next start reads "
    "the batch again"
)

#: One row for each rule that was violated. ``rule`` is its position; the last three columns are the
#: origin of the first record with a violating row.
VIOLATIONS_SCHEMA = pa.schema(
    [
        pa.field("rule", pa.int32()),
        pa.field("count", pa.int64()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True, order=True)
class Origin:
    """The Kafka record of a row."""

    topic: str
    partition: int
    offset: int

    @classmethod
    def of(cls, records: pa.Table, row: int, topic: str | None) -> Origin:
        """Return the origin of a raw record.

        Args:
            records: raw Kafka records.
            row: the row of the record.
            topic: the topic of records that have no ``topic`` column.
        """
        names = [n for n in ("topic", "partition", "offset") if n in records.column_names]
        (record,) = records.select(names).slice(row, 1).to_pylist()
        return cls(record.get("topic") or topic or "", record["partition"], record["offset"])

    def __str__(self) -> str:
        return f"{self.topic} {self.partition}:{self.offset}"


@dataclass(frozen=True, slots=True)
class ViolationCount:
    """The rows that violated one rule.

    Attributes:
        count: the number of rows.
        first: the origin of the first of these rows.
    """

    count: int
    first: Origin

    def __str__(self) -> str:
        if self.count == 1:
            return f"a row of record {self.first}"
        return f"{self.count} rows, the first of record {self.first}"


@dataclass(frozen=True, slots=True)
class RuleViolations:
    """The rows of a batch that violated one rule, for reports.

    Attributes:
        rule: the name of the rule.
        outcome: what happens to the rows, as in the pipeline file.
        count: the number of rows.
        first: the origin of the first of these rows.
    """

    rule: str
    outcome: str
    count: int
    first: str


@dataclass(frozen=True, slots=True)
class Violations:
    """The rows of a chunk, or of a batch, that violated rules, by the position of the rule."""

    by_rule: Mapping[int, ViolationCount]

    def __bool__(self) -> bool:
        return bool(self.by_rule)

    @classmethod
    def merged(cls, parts: Iterable[Violations]) -> Violations:
        """Add up the counts. The order of the parts makes no difference."""
        found: dict[int, ViolationCount] = {}
        for rule, more in (item for part in parts for item in part.by_rule.items()):
            known = found.get(rule)
            if known is not None:
                more = ViolationCount(known.count + more.count, min(known.first, more.first))
            found[rule] = more
        return cls(dict(sorted(found.items())))

    @classmethod
    def of(cls, tables: Iterable[pa.Table]) -> Violations:
        """Merge the tables that ``to_table`` returned for chunks, in any order."""
        return cls.merged(
            cls({row.pop("rule"): ViolationCount(row.pop("count"), Origin(**row))})
            for table in tables
            for row in table.to_pylist()
        )

    def to_table(self) -> pa.Table:
        """Return a table with the columns of ``VIOLATIONS_SCHEMA``."""
        rows = [
            {"rule": rule, "count": one.count, **asdict(one.first)}
            for rule, one in self.by_rule.items()
        ]
        return pa.Table.from_pylist(rows, VIOLATIONS_SCHEMA)

    def report(self, rules: Sequence[Rule]) -> tuple[RuleViolations, ...]:
        """Return the rules that were violated, in order."""
        return tuple(
            RuleViolations(rules[n].name, rules[n].outcome.value, one.count, str(one.first))
            for n, one in self.by_rule.items()
        )

    def to_json(self, rules: Sequence[Rule], of_checks: Sequence[Mapping[str, object]] = ()) -> str:
        """Return the counts of all rules in the form in which a commit stores them.

        Args:
            rules: the rules.
            of_checks: the results of the checks of the batch (``CheckResults.facts``).
        """
        counts = [
            {"rule": rule.name, "otherwise": rule.outcome.value, "violations": self._count(n)}
            for n, rule in enumerate(rules)
        ]
        return json.dumps([*counts, *of_checks], separators=(",", ":"))

    def check(self, rules: Sequence[Rule], consequence: str = _BATCH_IS_READ_AGAIN) -> None:
        """Check that no rule is violated whose violation stops the run.

        Args:
            rules: the rules of the pipeline.
            consequence: what follows from the error, with its remedy.

        Raises:
            ExpectationFailed: such a rule is violated.
        """
        failed = [n for n in self.by_rule if rules[n].outcome is Outcome.FAIL]
        if failed:
            facts = [
                f"{rules[n].path}: {rules[n].description} is violated by {self.by_rule[n]}"
                for n in failed
            ]
            raise ExpectationFailed(facts, self.report(rules), consequence)

    def _count(self, rule: int) -> int:
        return self.by_rule[rule].count if rule in self.by_rule else 0


NO_VIOLATIONS = Violations({})


class ExpectationFailed(Permanent):
    """Rows violate a rule whose violation stops the run. Nothing of the batch was published.

    Attributes:
        violations: all rules that rows of the batch violate.
    """

    def __init__(
        self, facts: Sequence[str], violations: tuple[RuleViolations, ...], consequence: str
    ) -> None:
        super().__init__("; ".join([*facts, consequence]))
        self.violations = violations
