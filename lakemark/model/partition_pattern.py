"""Patterns that choose partitions by their paths."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from lakemark.errors import InvalidConfig

_REGEX = "regex:"


@dataclass(frozen=True, slots=True)
class PartitionPattern:
    """A pattern for partition paths.

        day=2026-04-*           each * stands for any text, slashes included
        regex:/hour=(0[0-9])$   a regular expression that must occur in the path

    Attributes:
        text: the pattern.

    Raises:
        InvalidConfig: the pattern is empty, or its regular expression is wrong.
    """

    text: str

    def __post_init__(self) -> None:
        if not self.text.removeprefix(_REGEX):
            message = f"{self.text!r} matches no partition; use a pattern such as 'region=*'"
            raise InvalidConfig(message)
        try:
            _compiled(self.text)
        except re.error as error:
            message = f"{self.text!r} is not a regular expression: {error}"
            raise InvalidConfig(message) from None

    @property
    def is_path(self) -> bool:
        """Whether the pattern is the path of one partition."""
        return "*" not in self.text and not self.text.startswith(_REGEX)

    def matches(self, path: str) -> bool:
        """Return whether a partition with this path is chosen."""
        return _compiled(self.text).search(path) is not None


@lru_cache(maxsize=256)
def _compiled(text: str) -> re.Pattern[str]:
    if text.startswith(_REGEX):
        return re.compile(text.removeprefix(_REGEX))
    return re.compile(rf"\A{'.*'.join(map(re.escape, text.split('*')))}\Z", re.DOTALL)
