"""The rules of ``expect``: conditions that each row should fulfil, and what happens otherwise.

As with a CHECK constraint in SQL, a row violates a rule if the condition is false, and not if it is
null. Rules judge the rows that would be written. They do not judge deletes, because a delete needs
only its key.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.errors import InvalidConfig
from lakemark.read.row_filter import find_matches
from lakemark.read.where import parse_where, parse_where_false
from transforms.reject_reason import RejectCode, RejectReason


class Outcome(StrEnum):
    """What happens to the rows that violate a rule."""

    WARN = "warn"
    SET_NULL = "set_null"
    DEAD_LETTER = "dead_letter"
    FAIL = "fail"


class InvalidRule(InvalidConfig):
    """A rule or a check that does not fit the columns of the table.

    Attributes:
        setting: the path of the wrong setting in the pipeline file: ``expect.0.rule``.
        reason: what is wrong, and the remedy.
    """

    def __init__(self, path: str, setting: str, reason: str) -> None:
        super().__init__(f"{path}.{setting}: {reason}")
        self.setting, self.reason = f"{path}.{setting}", reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A condition that each row should fulfil. Can be pickled.

    Attributes:
        path: the path of the rule in the pipeline file: ``expect.0``.
        name: the name of the rule in messages, commits and metrics.
        condition: the condition, in the language of ``lakemark.read.where``.
        outcome: what happens to the rows that violate the rule.
        column: the column that ``SET_NULL`` sets to null; "" with any other outcome.
    """

    path: str
    name: str
    condition: str
    outcome: Outcome
    column: str = ""

    def check(self, columns: pa.Schema, required: Collection[str]) -> None:
        """Check that the rule can judge rows with these columns.

        Args:
            columns: the columns of the table, without meta columns.
            required: the columns without which a row cannot be written, or that mark deletes.

        Raises:
            InvalidRule: the condition names an unknown column, or compares a column with a value of
                another type; or a required column would be set to null.
        """
        try:
            parse_where(self.condition, columns)
        except InvalidConfig as error:
            raise InvalidRule(self.path, "rule", str(error)) from error
        if self.outcome is not Outcome.SET_NULL:
            return
        if self.column not in columns.names:
            reason = f"there is no column {self.column!r}; columns: {', '.join(columns.names)}"
            raise InvalidRule(self.path, "column", reason)
        if self.column in required:
            reason = (
                f"column {self.column!r} cannot be set to null, because it is in the record key, "
                "the partition or the ordering, or marks deletes; use otherwise: dead_letter"
            )
            raise InvalidRule(self.path, "otherwise", reason)

    def find_violations(self, rows: pa.Table) -> npt.NDArray[np.bool_]:
        """Return for each row whether it violates the rule."""
        return find_matches(rows, parse_where_false(self.condition, rows.schema))

    @property
    def reason(self) -> RejectReason:
        """Why a row that violates the rule is rejected."""
        text = f"{self.path}: {self.description} is violated"
        return RejectReason(RejectCode.RULE_VIOLATED, text)

    @property
    def description(self) -> str:
        """The name of the rule, and its condition if this is not its name."""
        shown = "" if self.name == self.condition else f" ({self.condition})"
        return f"rule {self.name!r}{shown}"

    def repair(self, rows: pa.Table, violating: npt.NDArray[np.bool_]) -> pa.Table:
        """Return the rows with a null in the rule's column of the violating rows."""
        index = rows.schema.get_field_index(self.column)
        field = rows.schema.field(index)
        null = pa.scalar(None, field.type)
        kept = pc.if_else(pa.array(violating), null, rows.column(index))
        return rows.set_column(index, field, kept)
