"""Mutants of how tables change: transactions, rollbacks, locks, archival, recovery, storage."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

OF_TRANSACTIONS: tuple[Mutant, ...] = ()
