"""The name of a custom merger: a Python class of the user that merges records."""

from __future__ import annotations

import re
from dataclasses import dataclass
from uuid import UUID

from lakemark.errors import InvalidConfig

_CLASS_PATH = re.compile(r"([^\W\d]\w*(\.[^\W\d]\w*)*|.+\.py):[^\W\d]\w*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class MergerName:
    """The class of a user's merger, and the id that tables store for it.

    Attributes:
        class_path: ``package.module:Class`` or ``FILE.py:Class``. Tables do not store it, so each
            process must receive it as a setting.
        strategy_id: a UUID, stored as ``hoodie.record.merge.strategy.id``. All readers and writers
            of the table must use a merger with this id.

    Raises:
        InvalidConfig: ``class_path`` is not a class path, or ``strategy_id`` is not a UUID.
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
                "generate one with uuid.uuid4(), and keep it for this table"
            )
            raise InvalidConfig(message) from None


def is_file(class_path: str) -> bool:
    """Return whether a class path names a Python file rather than a module."""
    return class_path.rpartition(":")[0].endswith(".py")


def check_class_path(text: str) -> str:
    """Check that a text has the form of a class path, and return it.

    Raises:
        InvalidConfig: the text has another form.
    """
    if not _CLASS_PATH.fullmatch(text):
        message = (
            f"merger {text!r} is not a class path; write package.module:Class or FILE.py:Class"
        )
        raise InvalidConfig(message)
    return text
