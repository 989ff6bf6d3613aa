"""Every sentence of the specifications that demands a behaviour has a test.

Or lakemark differs from it, as ``docs/specification.md`` documents. ``tests/spec/sentences`` lists
the sentences.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spec.sentences import record_merger, storage_format, timeline
from tests.spec.sentences.proofs import (
    Sentences,
    difference_of,
    documented_differences,
    proofs_of,
)

_TESTS = Path(__file__).parents[1]

SPECIFICATIONS: dict[str, Sentences] = {
    "Apache Hudi Technical Specification": storage_format.SENTENCES,
    "Timeline": timeline.SENTENCES,
    "Record Merger": record_merger.SENTENCES,
}

_PROOFS = [proof for sentences in SPECIFICATIONS.values() for proof in proofs_of(sentences)]
_DIFFERENCES = [one for one in map(difference_of, _PROOFS) if one is not None]


@pytest.mark.parametrize("specification", SPECIFICATIONS)
def test_every_sentence_has_its_proof(specification: str) -> None:
    for section, sentences in SPECIFICATIONS[specification].items():
        assert sentences, section
        assert all(sentences.values()), section


@pytest.mark.parametrize("file", sorted({p.partition("::")[0] for p in _PROOFS if "::" in p}))
def test_proofs_elsewhere_exist(file: str) -> None:
    named = {proof.partition("::")[2] for proof in _PROOFS if proof.startswith(f"{file}::")}
    assert named <= {*_tests_of(_TESTS / file)}


def test_every_test_of_this_folder_proves_a_sentence() -> None:
    files = [path for path in Path(__file__).parent.glob("test_*.py") if path != Path(__file__)]
    there = {name for path in files for name in _tests_of(path)}
    assert {proof for proof in _PROOFS if proof.startswith("test_")} == there


def test_every_difference_is_documented() -> None:
    rows = documented_differences()
    for named in _DIFFERENCES:
        assert sum(named.describes(row) for row in rows) == 1, named


def test_every_documented_difference_belongs_to_a_sentence() -> None:
    unnamed = [
        row
        for row in documented_differences()
        if not any(named.describes(row) for named in _DIFFERENCES)
    ]
    assert unnamed == []


def _tests_of(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node.name
