"""A file in a store, which remembers a failure of the store."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from typing import BinaryIO, TypeVar

from lakemark.errors import HudiError
from lakemark.storage.range_reader import SizedReader

T = TypeVar("T")


class StoredFile(SizedReader):
    """A file that passes all calls to another one, within its size.

    The failures of a store are not those of damaged bytes. Damaged bytes let a decoder ask for
    bytes that do not exist, and this class answers such calls itself.

    Attributes:
        failure: the last error of the store, or None. A decoder may have raised another error
            instead.

    Args:
        inner: the file. It is not closed.
    """

    def __init__(self, inner: BinaryIO) -> None:
        self._inner = inner
        self.failure: Exception | None = None
        super().__init__(self._ask(partial(inner.seek, 0, io.SEEK_END)))

    def _range(self, start: int, length_bytes: int) -> bytes:
        self._ask(partial(self._inner.seek, start))
        return self._ask(partial(self._inner.read, length_bytes))

    def _ask(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except (HudiError, OSError, MemoryError) as failure:
            self.failure = failure
            raise
