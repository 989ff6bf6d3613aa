"""Mutants of indexes: how they are created, the entries that a commit changes, and queries."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_RECORDS = ("tests/unit/metadata/test_secondary_index_records.py",)

_CREATION = ("tests/unit/operations/test_indexes.py",)

OF_INDEXES = (
    Mutant(
        "lakemark/metadata/new_index.py",
        "for one in gone:",
        "for one in ():",
        "a new index has records of rows that were changed while it was built",
        _CREATION,
    ),
    Mutant(
        "lakemark/operations/create_index.py",
        "if content.update(_sources(table, build), lease.check):",
        "if False:",
        "a new index lacks the commits since its rows were read",
        _CREATION,
    ),
    Mutant(
        "lakemark/metadata/recorded_files.py",
        'since = [i for i in self._since_compaction() if (i.completed_at or "") >= created_at]',
        "since = self._since_compaction()",
        "an index that was dropped and created again stops every writer",
        _CREATION,
    ),
    Mutant(
        "lakemark/operations/later_commits.py",
        "if not later:",
        "if True:",
        "a batch is refused because another writer's keys are compacted into the record index",
        _CREATION,
    ),
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
