"""Renders docs/foreign_tables.md from the rules: ``python -m lakemark.config.property_page``."""

from __future__ import annotations

from pathlib import Path

from lakemark.config.property_rule import ANY_VALUE, Effect, PropertyRule, Purpose, Refusal
from lakemark.config.property_rules import SUBJECTS, USER_NOTES

_PAGE = Path(__file__).parents[2] / "docs" / "foreign_tables.md"

_HEAD = """# Foreign tables: what each property means

A foreign table is a table that Apache Hudi created or writes. This page lists each property in a
table's `.hoodie/hoodie.properties` that Apache Hudi 1.2.0 knows. `python -m
lakemark.config.property_page` generates the page from the rules that every command, pipeline and
Python program applies (`lakemark/config/property_rules.py`).

Writing covers everything that changes a table: inserts, updates and deletes by pipelines and Python
programs, table services, rollbacks, restores and version changes.

- **honour**: the value decides what lakemark reads or writes.
- **ignore**: the value is kept but not used. The last column explains the property, or says why it
  can be ignored.
- **refuse**: lakemark does not open the table for reading or for writing, depending on the column.
  The error names the property, its value and the remedy. In `ignore; refuse X`, lakemark refuses
  the values X and ignores all other values.
- **(records only)**: lakemark refuses to insert, update and delete rows, but runs table services,
  rollbacks, restores and version changes.

If a table has a `hoodie.` property that is not on this page, lakemark can only read the table. The
reason is that the property may require something of writers that lakemark does not do. A table in
which the value of a property begins or ends with a space is also read-only for lakemark. Apache
Hudi treats the space as part of the value, so `true` with a space after it means false. While a
pipeline runs, each commit applies the rules again to the current properties.
"""

_COLUMNS = "| Property | Reading | Writing | Why |\n|---|---|---|---|\n"


def render_page() -> str:
    """Return the text of the whole page."""
    parts = [f"\n## {name}\n\n{_COLUMNS}{_rows(rules)}" for name, rules in SUBJECTS.items()]
    others = f"\n## Other keys\n\n{_COLUMNS}{_rows((USER_NOTES,))}"
    return "".join([_HEAD, *parts, others])


def _rows(rules: tuple[PropertyRule, ...]) -> str:
    return "".join(f"{_row(rule)}\n" for rule in rules)


def _row(rule: PropertyRule) -> str:
    key = rule.key if rule is USER_NOTES else f"`{rule.key}`"
    reading = [refusal for refusal in rule.refusals if refusal.since is Purpose.READ]
    cells = (key, _cell(rule.reading, reading), _cell(rule.writing, rule.refusals), rule.why)
    return f"| {' | '.join(cells)} |"


def _cell(effect: Effect, refusals: tuple[Refusal, ...] | list[Refusal]) -> str:
    """Return the text of a cell: the effect, and the values that are refused.

    These are the values of the last refusal, because it covers the most values.
    """
    if not refusals:
        return str(effect)
    last = refusals[-1]
    if last.values == ANY_VALUE:
        return "refuse"
    scope = " (records only)" if last.since is Purpose.WRITE else ""
    return f"{effect}; refuse {last.values}{scope}"


if __name__ == "__main__":
    _PAGE.write_text(render_page(), encoding="utf-8")
