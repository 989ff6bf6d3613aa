"""The checks of ``expect``: SQL queries that judge a whole batch before it is published.

A batch violates a check if the query of the check returns rows. These rows are the violations. A
query that fails on the values of a batch, for example because a text cannot be cast, also violates
its check, because nothing shows that the batch is right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakemark.errors import InvalidConfig, Permanent
from transforms.batch_query import check_query, columns_read, reads_stored
from transforms.expectations import InvalidRule, Outcome

#: How many violating rows a message shows, and how many characters of each.
SHOWN_ROWS = 5
_SHOWN_CHARACTERS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCheck:
    """A query that should return no rows. Can be pickled.

    Attributes:
        path: the path of the check in the pipeline file: ``expect.0``.
        name: the name of the check in messages, commits and metrics.
        query: the query (``transforms.batch_query``).
        outcome: what happens to a batch that violates the check: ``WARN`` or ``FAIL``.
    """

    path: str
    name: str
    query: str
    outcome: Outcome

    def check(self, columns: pa.Schema | None) -> None:
        """Check that the query can judge rows with these columns.

        Args:
            columns: the columns of the table, without meta columns; None if they are not known.

        Raises:
            InvalidRule: the query has an error, or DuckDB is not installed.
        """
        try:
            check_query(self.query, columns)
        except InvalidConfig as error:
            raise InvalidRule(self.path, "check", str(error)) from error

    @property
    def reads_stored(self) -> bool:
        """Whether the query reads the stored rows of the table."""
        return reads_stored(self.query)

    @property
    def description(self) -> str:
        """The name of the check, and its query if this is not its name."""
        shown = "" if self.name == self.query else f" ({self.query})"
        return f"check {self.name!r}{shown}"


def columns_of_checks(checks: Sequence[BatchCheck], columns: pa.Schema) -> tuple[str, ...]:
    """Return the columns that the queries of checks may read, in the order of the table."""
    read = {name for one in checks for name in columns_read(one.query, columns)}
    return tuple(name for name in columns.names if name in read)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check.

    Attributes:
        count: the number of rows that the query returned; 0 if it failed.
        first: the first of these rows, as texts of limited length.
        error: why the query failed on this batch; "" if it did not fail.
    """

    count: int = 0
    first: tuple[str, ...] = ()
    error: str = ""

    @property
    def is_violated(self) -> bool:
        """Whether the batch violates the check."""
        return bool(self.count or self.error)

    def __str__(self) -> str:
        if self.error:
            return f"cannot judge the batch: {self.error}"
        shown = "; ".join(self.first)
        rows = "1 row" if self.count == 1 else f"{self.count} rows, the first"
        return f"returned {rows}: {shown}"


@dataclass(frozen=True, slots=True)
class CheckViolation:
    """A check that a batch violated, for reports.

    Attributes:
        check: the name of the check.
        outcome: what happens to the batch, as in the pipeline file.
        result: the rows that the query returned, or its error.
    """

    check: str
    outcome: str
    result: CheckResult


@dataclass(frozen=True, slots=True)
class CheckResults:
    """The results of all checks of a pipeline for one batch, in order.

    They are empty if the batch was not judged, because the pipeline has no checks or the batch has
    no records.
    """

    results: tuple[CheckResult, ...] = ()

    def report(self, checks: Sequence[BatchCheck]) -> tuple[CheckViolation, ...]:
        """Return the checks that were violated, in order."""
        return tuple(
            CheckViolation(check.name, check.outcome.value, result)
            for check, result in self._of(checks)
            if result.is_violated
        )

    def facts(self, checks: Sequence[BatchCheck]) -> list[dict[str, object]]:
        """Return the results of all checks in the form in which a commit stores them.

        If the query failed, ``violations`` is null.
        """
        return [
            {
                "check": check.name,
                "otherwise": check.outcome.value,
                "violations": None if result.error else result.count,
            }
            for check, result in self._of(checks)
        ]

    def check(self, checks: Sequence[BatchCheck], batch: str) -> None:
        """Check that no check is violated whose violation stops the run.

        Args:
            checks: the checks of the pipeline.
            batch: the offsets of the batch, for the error.

        Raises:
            BatchCheckFailed: such a check is violated.
        """
        facts = [
            f"{check.path}: {check.description} {result}"
            for check, result in self._of(checks)
            if result.is_violated and check.outcome is Outcome.FAIL
        ]
        if facts:
            raise BatchCheckFailed(batch, facts, self.report(checks))

    def _of(self, checks: Sequence[BatchCheck]) -> Iterator[tuple[BatchCheck, CheckResult]]:
        return zip(checks, self.results, strict=True) if self.results else iter(())


NOT_CHECKED = CheckResults()


class BatchCheckFailed(Permanent):
    """A batch violates a check whose violation stops the run. Nothing of the batch was published.

    Attributes:
        violations: all checks that the batch violates.
    """

    def __init__(
        self, batch: str, facts: Sequence[str], violations: tuple[CheckViolation, ...]
    ) -> None:
        super().__init__(
            f"{batch}: {'; '.join(facts)}; nothing of this batch was published; correct the "
            "records or the check, or set its otherwise to warn; the next start reads the batch "
            "again"
        )
        self.violations = violations


def show_row(row: dict[str, object]) -> str:
    """Return a row as a text of limited length: ``id=a, n=2``."""
    text = ", ".join(f"{name}={value}" for name, value in row.items())
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
