"""Some histories from fixed seeds, and a check that replays are exact.

``make simulate`` and the end of ``.ci/run`` try new seeds.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.depth import examples

ROOT = Path(__file__).parents[2]


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, with the fixed hashes of ``--seed``."""
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    environment = os.environ | {"PYTHONHASHSEED": "0"}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def test_histories_of_fixed_seeds_pass() -> None:
    done = simulate("--first", "1000", "--histories", str(examples(15)), "--minutes", "5")
    assert done.returncode == 0, done.stdout + done.stderr


def test_seed_is_replayed_exactly() -> None:
    first, second = (simulate("--seed", "1000") for _ in range(2))
    assert first.returncode == 0, first.stdout + first.stderr
    assert first.stdout.splitlines()[-1].split()[-2:] == ["end", "check"]
    assert first.stdout == second.stdout
