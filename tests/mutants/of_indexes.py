"""Mutants of the secondary indexes: the entries that a commit changes, and queries by value."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_RECORDS = ("tests/unit/metadata/test_secondary_index_records.py",)

OF_INDEXES = (
    Mutant(
        "lakemark/write/index_changes.py",
        "for found, logs in ((old, before.logs), (new, (*before.logs, log))):",
        "for found, logs in ((old, before.logs), (new, (log,))):",
        "a late change that loses to a row of an older log replaces the row's value in the index",
        _RECORDS,
    ),
    Mutant(
        "lakemark/metadata/secondary_index_records.py",
        "return changes.hashed_by(hashed_part) if column.hashes_values else changes",
        "return changes",
        "entries of an index of version 2 are in file groups in which no reader looks for them",
        _RECORDS,
    ),
    Mutant(
        "lakemark/read/demanded_values.py",
        "return {name: one[name] | other[name] for name in one.keys() & other.keys()}",
        "return {**one, **other}",
        "a query with or misses the rows that meet only one of its conditions",
        _RECORDS,
    ),
)
