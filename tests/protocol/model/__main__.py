"""``make model``: search every scenario within its bounds, and show what each rule prevents."""

from __future__ import annotations

import sys

from tests.protocol.model.expectations import BROKEN, SAFE
from tests.protocol.model.scenarios import BEYOND, WIDE
from tests.protocol.model.search import Found, search, walk

_WALKS = 1_000


def main() -> int:
    """Print the results; return 1 if a safe scenario is broken, or a broken one is safe."""
    wrong = 0
    for scenario in (*SAFE, *WIDE):
        found = search(scenario)
        wrong += bool(found.problem)
        print(f"{scenario.name}: {found}", flush=True)
    for scenario in BEYOND:
        wrong += _walk(scenario.name, [walk(scenario, seed) for seed in range(_WALKS)])
    for scenario, missing in BROKEN:
        found = search(scenario.without(*missing))
        wrong += not found.problem
        print(f"\n{scenario.name}, without {' and '.join(missing)}: {found}", flush=True)
    return min(wrong, 1)


def _walk(name: str, walks: list[Found]) -> bool:
    broken = [found for found in walks if found.problem]
    steps = sum(found.states for found in walks)
    print(f"{name}: {len(walks)} random schedules of {steps} steps, {len(broken)} broken")
    for found in broken[:1]:
        print(found)
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
