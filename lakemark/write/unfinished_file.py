"""A file that is discarded unless its writer closes it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class UnfinishedFile(ABC):
    """A file that is being written. On exit, the context manager discards it unless it is closed.

    The subclass has a method ``close``, which makes the file visible.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.abort()

    @abstractmethod
    def abort(self) -> None:
        """Discard the file, unless it was closed."""
