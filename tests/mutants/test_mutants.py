"""The list of mutants matches the code, and the command separates killed mutants from survivors."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutants.__main__ import Verdict, judge
from tests.mutants.listed import MUTANTS
from tests.mutants.mutant import ROOT, Mutant
from tests.mutants.trial import Outcome


@pytest.mark.parametrize("file", sorted({mutant.file for mutant in MUTANTS}))
def test_mutants_change_one_place_of_the_code(file: str) -> None:
    for mutant in MUTANTS:
        if mutant.file == file:
            assert mutant.source() != mutant.path.read_text(), mutant
            compile(mutant.source(), file, "exec")


@pytest.mark.parametrize("test", sorted({test for mutant in MUTANTS for test in mutant.tests}))
def test_tests_of_a_mutant_exist(test: str) -> None:
    path, *names = test.split("::")
    assert (ROOT / path).exists()
    for name in names:
        assert name.split("[")[0] in _defined(ROOT / path)


def test_no_mutant_is_listed_twice() -> None:
    assert len({(mutant.file, mutant.find, mutant.put) for mutant in MUTANTS}) == len(MUTANTS)
    assert len({str(mutant) for mutant in MUTANTS}) == len(MUTANTS)
    assert all(mutant.tests for mutant in MUTANTS)


MUTANT = Mutant("a.py", "<", "<=", "a user loses a row", ("tests/test_a.py",))
LIKE_BEFORE = replace(MUTANT, survives="both are equal")
FAILED, PASSED = Outcome(failed=["test_a"], passed=1), Outcome(passed=2)


@pytest.mark.parametrize(
    ("mutant", "outcome", "verdict"),
    [
        (MUTANT, FAILED, Verdict.KILLED),
        (MUTANT, PASSED, Verdict.SURVIVED),
        (LIKE_BEFORE, PASSED, Verdict.WITHOUT_EFFECT),
        (LIKE_BEFORE, FAILED, Verdict.NOT_SO_WITHOUT_EFFECT),
        (MUTANT, Outcome(broken=["tests/test_a.py"]), Verdict.NO_TESTS),
        (MUTANT, Outcome(), Verdict.NO_TESTS),
    ],
)
def test_tests_of_a_mutant_decide_its_verdict(
    mutant: Mutant, outcome: Outcome, verdict: Verdict
) -> None:
    assert judge(mutant, outcome) is verdict


def test_command_runs_the_tests_on_the_changed_code() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "tests.mutants", "the last ordering field counts"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == 0, result.stdout + result.stderr
    assert "1 of 1 killed, 0 not as listed" in result.stdout
    assert "test_first_ordering_field_is_most_significant" in result.stdout


def _defined(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return {n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.ClassDef)}
