"""Tasks of an executor end once the files that they wrote survive a power failure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from lakemark.storage.durability import sync_process

Argument = TypeVar("Argument")
Result = TypeVar("Result")


@dataclass(frozen=True)
class DurableTask(Generic[Argument, Result]):
    """A function whose files are forced to the local disk before the driver gets its result.

    The driver forces only what its own process wrote.
    """

    function: Callable[[Argument], Result]

    def __call__(self, argument: Argument) -> Result:
        """What the function makes of it.

        Raises:
            StorageUnavailable: the disk failed, or is full.
        """
        result = self.function(argument)
        sync_process()
        return result
