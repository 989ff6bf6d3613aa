"""The name of a merger that somebody wrote for their own table."""

from __future__ import annotations

import re
from dataclasses import dataclass
from uuid import UUID

from lakemark.errors import InvalidConfig

_CLASS_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


@dataclass(frozen=True, slots=True)
class MergerName:
    """What a table keeps of its own merger, and where a process finds the class.

    Attributes:
        class_path: ``package.module:Class``; every process is told it anew, it is not stored.
        strategy_id: a UUID, stored as ``hoodie.record.merge.strategy.id``: whoever reads or writes
            the table merges with a class that has it.

    Raises:
        InvalidConfig: not a class path, or not a UUID.
    """

    class_path: str
    strategy_id: str

    def __post_init__(self) -> None:
        check_class_path(self.class_path)
        try:
            UUID(self.strategy_id)
        except ValueError:
            message = (
                f"merger {self.class_path}: strategy id {self.strategy_id!r} is not a UUID; "
                "make one with uuid.uuid4() and keep it"
            )
            raise InvalidConfig(message) from None


def check_class_path(text: str) -> str:
    """The text, if it can be the path of a class.

    Raises:
        InvalidConfig: it cannot.
    """
    if not _CLASS_PATH.fullmatch(text):
        message = f"merger {text!r} is not a class path; write it as package.module:Class"
        raise InvalidConfig(message)
    return text
