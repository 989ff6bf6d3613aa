"""All mutants."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.of_checkpoints import OF_CHECKPOINTS
from tests.mutants.of_codecs import OF_CODECS
from tests.mutants.of_indexes import OF_INDEXES
from tests.mutants.of_merging import OF_MERGING
from tests.mutants.of_plans import OF_PLANS
from tests.mutants.of_records import OF_RECORDS
from tests.mutants.of_services import OF_SERVICES
from tests.mutants.of_slices import OF_SLICES
from tests.mutants.of_statistics import OF_STATISTICS
from tests.mutants.of_storage import OF_STORAGE
from tests.mutants.of_subscriptions import OF_SUBSCRIPTIONS
from tests.mutants.of_transactions import OF_TRANSACTIONS
from tests.mutants.of_writers import OF_WRITERS

MUTANTS: tuple[Mutant, ...] = (
    *OF_MERGING,
    *OF_SLICES,
    *OF_STATISTICS,
    *OF_INDEXES,
    *OF_CHECKPOINTS,
    *OF_CODECS,
    *OF_RECORDS,
    *OF_PLANS,
    *OF_TRANSACTIONS,
    *OF_WRITERS,
    *OF_SERVICES,
    *OF_STORAGE,
    *OF_SUBSCRIPTIONS,
)
