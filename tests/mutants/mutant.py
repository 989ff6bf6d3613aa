"""A mutant: one wrong change of the code, what a user would lose by it, the tests that notice."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Mutant:
    """A change that a tired engineer might make, and the suite must not let pass.

    Attributes:
        file: what is changed, from the project's folder.
        find: the text that is replaced; it occurs once in the file.
        put: the text in its place.
        loses: what a user would lose by the change, as a sentence.
        tests: paths or node ids of fast tests, the one that should fail first. They see the change
            only in their own process, not in one that they start.
        survives: why no test can fail, if the change has no effect that anyone could see.
    """

    file: str
    find: str
    put: str
    loses: str
    tests: tuple[str, ...]
    survives: str = ""

    def __str__(self) -> str:
        return f"{self.file}: {self.loses}"

    @property
    def path(self) -> Path:
        """The file that it changes."""
        return ROOT / self.file

    def source(self) -> str:
        """The whole file with the change made.

        Raises:
            LookupError: the text to replace is not there, or there more than once.
        """
        text = self.path.read_text()
        occurrences = text.count(self.find)
        if occurrences != 1:
            message = f"{self.file} contains {self.find!r} {occurrences} times, not once"
            raise LookupError(message)
        return text.replace(self.find, self.put)
