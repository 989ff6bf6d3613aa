"""The result of a replay of dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from lakemark.model.meta_columns import RECORD_KEY
from transforms.expectations import Outcome, Rule
from transforms.violations import NO_VIOLATIONS, RuleViolations, Violations


@dataclass(slots=True)
class ReplayResult:
    """The result of a replay, or of its preview; or what it has done before an error.

    Attributes:
        rules: the rules of ``expect`` that judge the rows.
        instants: the commits to the table, in order.
        passed: the number of letters whose records pass.
        marked: the number of letters of an interrupted replay whose rows were already committed.
        failed: the letters that fail again, with their new reasons; the columns of
            ``REJECTS_SCHEMA`` without key and value.
        of_other_topics: the number of letters of other topics, which are left as they are.
        unread: the number of letters that the pipeline will read again, which are left, too.
        violations: how many rows of records that were converted violate the rules.
    """

    rules: Sequence[Rule] = ()
    instants: list[str] = field(default_factory=list)
    passed: int = 0
    marked: int = 0
    failed: list[pa.Table] = field(default_factory=list)
    of_other_topics: int = 0
    unread: int = 0
    violations: Violations = NO_VIOLATIONS

    @property
    def is_empty(self) -> bool:
        """Whether no letter was converted or marked."""
        return not (self.passed or self.marked or any(one.num_rows for one in self.failed))

    @property
    def written_violations(self) -> Sequence[RuleViolations]:
        """The rules that rows violate which are written nevertheless.

        Records that rules reject are among the letters that fail.
        """
        reported = self.violations.report(self.rules)
        return [one for one in reported if one.outcome != Outcome.DEAD_LETTER.value]

    def add_failed(self, letters: pa.Table) -> None:
        """Add letters that fail again."""
        self.failed.append(letters.drop_columns(["key", "value", RECORD_KEY]))

    def add_passed(self, letters: int, violations: Violations) -> None:
        """Add letters that pass, and the violations of the rows of their round."""
        self.passed += letters
        self.violations = Violations.merged([self.violations, violations])
