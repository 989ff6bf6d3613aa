"""A few random histories of all actions; ``make random-histories`` runs many, from new seeds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.depth import examples
from tests.interop.oracle import Oracle
from tests.interop.random_history.runs import run_history

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("seed", range(examples(3)))
def test_both_programs_read_the_rows_of_the_model(
    oracle: Oracle, tmp_path: Path, seed: int
) -> None:
    run_history(oracle, tmp_path / "orders", seed, acts=15)
