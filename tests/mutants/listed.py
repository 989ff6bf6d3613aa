"""All mutants."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.of_rows import OF_ROWS
from tests.mutants.of_transactions import OF_TRANSACTIONS

MUTANTS: tuple[Mutant, ...] = (*OF_ROWS, *OF_TRANSACTIONS)
