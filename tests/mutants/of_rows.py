"""Mutants of what becomes of rows: merging, slicing, statistics, checkpoints, codecs, plans."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_MERGING = (
    Mutant(
        file="table/merge/ordering.py",
        find="_SHORT_DECIMAL_DIGITS = 18",
        put="_SHORT_DECIMAL_DIGITS = 19",
        loses="a decimal of 19 digits is ranked by 64 of its bits: an older row replaces a newer",
        tests=("tests/unit/merge/test_ordering.py",),
    ),
    Mutant(
        file="table/merge/ordering.py",
        find="order = np.lexsort(columns[::-1])",
        put="order = np.lexsort(columns)",
        loses="the last ordering field counts more than the first",
        tests=("tests/unit/merge/test_ordering.py",),
    ),
    Mutant(
        file="table/merge/ordering.py",
        find="    ranks[_to_numpy(column.is_null())] = 0\n",
        put="",
        loses="a row without an ordering value replaces rows that have one",
        tests=("tests/unit/merge/test_ordering.py",),
    ),
)

_PRUNING = (
    Mutant(
        file="table/read/pruning.py",
        find="len(known) < len(files) or ",
        put="not known or ",
        loses="a slice is skipped although one of its files has no statistics: rows are missing",
        tests=("tests/unit/read/test_pruning.py",),
    ),
)

OF_ROWS = (*_MERGING, *_PRUNING)
