"""What proves a sentence of a specification.

A proof is one of these texts:

- ``test_<name>``: a test of the folder ``tests/spec``
- ``<file>::test_<name>``: another test; the file is relative to ``tests``
- ``differs: <section>: <words>``: a row of ``docs/specification.md``, in which a cell of the first
  column begins with these words. lakemark differs from the sentence, as the row describes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

#: The proofs of each sentence, by the section of the specification and the shortened sentence.
Sentences: TypeAlias = Mapping[str, Mapping[str, list[str]]]

_TESTS = Path(__file__).parents[2]
_DIFFERS = "differs: "


@dataclass(frozen=True, slots=True, order=True)
class Difference:
    """A row of ``docs/specification.md``.

    Attributes:
        section: the heading above the row.
        says: the first cell, or its first words.
    """

    section: str
    says: str

    def describes(self, row: Difference) -> bool:
        """Return whether these are the first words of a row."""
        return self.section == row.section and row.says.startswith(self.says)


def proofs_of(sentences: Sentences) -> Iterator[str]:
    """Yield all proofs of a specification."""
    for section in sentences.values():
        for proofs in section.values():
            yield from proofs


def difference_of(proof: str) -> Difference | None:
    """Return the difference that a proof names; None if the proof is a test."""
    if not proof.startswith(_DIFFERS):
        return None
    section, _, says = proof.removeprefix(_DIFFERS).partition(": ")
    return Difference(section, says)


def documented_differences() -> list[Difference]:
    """Return the rows of the tables whose first column is what the specification says."""
    page = (_TESTS.parent / "docs" / "specification.md").read_text("utf-8")
    found = []
    for section in page.split("\n## ")[1:]:
        heading, _, text = section.partition("\n")
        if "\n| The specification says |" in text:
            cells = re.findall(r"^\| (.*?) \|", text, re.MULTILINE)
            found += [Difference(heading, cell) for cell in cells[1:]]
    return found
