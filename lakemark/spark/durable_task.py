"""Makes Spark tasks durable: they end only when their files survive a power failure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from lakemark.storage.durability import sync_process

Argument = TypeVar("Argument")
Result = TypeVar("Result")


@dataclass(frozen=True)
class DurableTask(Generic[Argument, Result]):
    """Forces the files of a function to the local disk before the driver gets its result.

    The driver itself forces only files of its own process.
    """

    function: Callable[[Argument], Result]

    def __call__(self, argument: Argument) -> Result:
        """Call the function, then force its files.

        Raises:
            StorageUnavailable: the disk failed, or is full.
        """
        result = self.function(argument)
        sync_process()
        return result
