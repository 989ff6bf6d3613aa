"""Configuration errors. An error lists all problems, one per line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakemark.errors import InvalidConfig


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem with one setting.

    Attributes:
        path: the path of the setting, such as ``table.record_key``; "" for the file as a whole.
        message: the value (masked if it is secret), the problem, and the accepted values.
    """

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class ConfigError(InvalidConfig):
    """A configuration that cannot be used; its text has one line for each problem."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


class Contradiction(ValueError):
    """Settings that are valid alone but cannot be combined."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = tuple(problems)
