"""A mutant: a wrong change of the code, its consequence for users, and the tests that notice it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Mutant:
    """A mistake that an engineer might make, and that a test must notice.

    Attributes:
        file: the changed file, relative to the project's folder.
        find: the text that is replaced; it occurs once in the file.
        put: the text in its place.
        loses: the consequence of the change for users, as a sentence.
        tests: paths or node ids of fast tests. The test that should fail comes first. The change
            applies only in the process of the tests, not in processes that they start.
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
        """The path of the changed file."""
        return ROOT / self.file

    def source(self) -> str:
        """Return the whole file with the change.

        Raises:
            LookupError: the file does not contain the text to replace, or contains it more than
                once.
        """
        text = self.path.read_text()
        occurrences = text.count(self.find)
        if occurrences != 1:
            message = f"{self.file} contains {self.find!r} {occurrences} times, not once"
            raise LookupError(message)
        return text.replace(self.find, self.put)
