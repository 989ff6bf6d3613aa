"""The rule of each table property; ``property_check`` applies the rules.

A property in ``hoodie.properties`` is honoured, ignored because that is harmless, or refused. A
``hoodie.`` property without a rule makes the table read-only, because it may require something of
writers that lakemark does not implement. Any property may have an effect, because Apache Hudi's
Spark writer uses every property of the file as an option of its writes. The same applies to a
``lakemark.`` property without a rule, which a later version of lakemark may have written. All other
keys are notes of users, which no version of Apache Hudi reads.

``docs/foreign_tables.md`` is rendered from these rules. Source: ``HoodieTableConfig`` and
``HoodieTableMetaClient.TableBuilder`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from lakemark.config.property_rule import ignored
from lakemark.config.rules_of_files import BOOTSTRAP_RULES, CHANGE_RULES, FILE_RULES
from lakemark.config.rules_of_indexes import INDEX_RULES
from lakemark.config.rules_of_keys import KEY_RULES
from lakemark.config.rules_of_merging import MERGING_RULES
from lakemark.config.rules_of_table import IDENTITY_RULES, TIMELINE_RULES

#: The rule of keys that begin neither with ``hoodie.`` nor with ``lakemark.``.
USER_NOTES = ignored(
    "(other keys than `hoodie.…` and `lakemark.…`)",
    "notes of users; Apache Hudi reads none of them",
)

#: All rules, by the sections of the documentation page.
SUBJECTS = {
    "The table": IDENTITY_RULES,
    "Timeline": TIMELINE_RULES,
    "Keys and partitions": KEY_RULES,
    "Merging": MERGING_RULES,
    "Files": FILE_RULES,
    "Indexes": INDEX_RULES,
    "Change data capture": CHANGE_RULES,
    "Bootstrap": BOOTSTRAP_RULES,
}
RULES = tuple(rule for rules in SUBJECTS.values() for rule in rules)
