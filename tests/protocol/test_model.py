"""The model of the commit protocol: no schedule breaks it, and each rule is needed.

``make model`` searches all states within the bounds; the tests stop after some thousand states.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from tests.depth import EVERYTHING, SEED, examples
from tests.protocol.model.expectations import BROKEN, SAFE
from tests.protocol.model.fixes import NAMES, Fixes
from tests.protocol.model.programs import ACTIONS, programs
from tests.protocol.model.scenarios import BEYOND
from tests.protocol.model.search import Scenario, search, walk

ROOT = Path(__file__).parents[2]
MOST_STATES = 10_000_000 if EVERYTHING else 2_000


@pytest.mark.parametrize("scenario", SAFE, ids=lambda scenario: scenario.name)
def test_no_schedule_breaks_the_protocol(scenario: Scenario) -> None:
    found = search(scenario, MOST_STATES)
    assert not found.problem, str(found)


@pytest.mark.parametrize(
    ("scenario", "missing"), BROKEN, ids=[f"{s.name}, {' and '.join(m)}" for s, m in BROKEN]
)
def test_schedule_breaks_the_protocol_without_a_rule(
    scenario: Scenario, missing: tuple[str, ...]
) -> None:
    found = search(scenario.without(*missing))
    assert found.problem, str(found)
    for name in missing if len(missing) > 1 else ():
        assert not search(scenario.without(name), MOST_STATES).problem, name


def test_every_rule_is_shown_to_be_needed() -> None:
    assert {name for _, missing in BROKEN for name in missing} == set(NAMES)


@seed(SEED)
@settings(max_examples=examples(20), deadline=None)
@given(st.sampled_from(BEYOND), st.integers(0, 2**32))
def test_no_random_schedule_beyond_the_bounds_breaks_the_protocol(
    scenario: Scenario, walked: int
) -> None:
    found = walk(scenario, walked)
    assert not found.problem, str(found)


def test_every_action_is_a_step_of_some_program() -> None:
    steps = {step for program in programs(Fixes()).values() for step in program}
    assert ACTIONS.keys() <= steps


def test_comments_in_the_code_name_every_action_of_the_model() -> None:
    files = [*ROOT.glob("lakemark/**/*.py"), *ROOT.glob("sinks/**/*.py")]
    text = "\n".join(file.read_text() for file in files)
    named = {name for line in re.findall(r"# model: (.+)", text) for name in line.split(", ")}
    assert named == {*ACTIONS, "renew"}
