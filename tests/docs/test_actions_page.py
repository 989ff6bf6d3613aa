"""``docs/actions.md`` lists every action in each table, and names scenarios that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lakemark.model.action import Action
from tests.recovery.scenarios import SCENARIOS

_PAGE = (Path(__file__).parents[2] / "docs" / "actions.md").read_text()
_TABLES = re.split(r"^## ", _PAGE, flags=re.MULTILINE)[1:]
_FINISHED, _READ, _KILLED, _ROLLED_BACK, *_ = _TABLES
#: An action of Apache Hudi that lakemark neither reads nor writes.
_ACTIONS = {*Action} - {Action.SCHEMA_COMMIT}


@pytest.mark.parametrize("table", [_FINISHED, _READ, _KILLED])
def test_every_action_has_tests(table: str) -> None:
    cells = re.findall(r"^\| ([^|]+) \|", table, flags=re.MULTILINE)
    assert {Action(name) for cell in cells for name in re.findall(r"`(\w+)`", cell)} == _ACTIONS


def test_scenarios_of_the_page_exist() -> None:
    named = re.findall(r'"([^"]+)"', _KILLED + _ROLLED_BACK)
    assert named
    assert {*named} <= SCENARIOS.keys()
