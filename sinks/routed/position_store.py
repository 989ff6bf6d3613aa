"""Keeps the positions of a routed pipeline, next to its tables.

Each version is an object of its own, whose name is its number. Objects are created and never
replaced, so if two processes write the same number, exactly one of them succeeds. A process that
is several numbers behind could create one that was deleted since, so it looks for larger ones. The
version before the newest one is kept: a power failure may lose an object that was just created.
"""

from __future__ import annotations

import json
import uuid

from checkpoints.routed_positions import RoutedPositions
from lakemark.errors import CorruptData, Permanent
from lakemark.storage import Storage
from lakemark.storage.storage import AlreadyExists

_SUFFIX = ".json"
_DIGITS = 20


class PositionsMoved(Permanent):
    """Another process writes the positions of the same pipeline."""

    def __init__(self, url: str) -> None:
        super().__init__(
            f"another process has advanced the positions in {url}, so this run stops; run a "
            "pipeline only once at a time, and name another folder (route.positions) for another "
            "pipeline of the same topic"
        )


class PositionStore:
    """The positions of one routed pipeline. Not thread-safe.

    Args:
        storage: the folder of the positions.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage, self._writer = storage, uuid.uuid4().hex
        self._number = 0

    @property
    def url(self) -> str:
        """The URL of the folder."""
        return self._storage.location.url

    def load(self) -> RoutedPositions | None:
        """Return the newest positions, which the next call of ``save`` follows; None at first.

        Raises:
            CorruptData: the newest version cannot be read.
        """
        numbers = self._numbers()
        self._number = max(numbers, default=0)
        if not numbers:
            return None
        path = _path(self._number)
        try:
            return RoutedPositions.parse(self._storage.read(path).decode())
        except ValueError as error:
            expected = "the positions of a routed pipeline (delete the file to use those before it)"
            url = f"{self.url}/{path}"
            raise CorruptData(url, None, expected, str(error)) from error

    def save(self, positions: RoutedPositions) -> None:
        """Write the next version. It survives a power failure once this method has returned.

        Raises:
            PositionsMoved: another process has written this version, or a later one.
        """
        facts = {**json.loads(positions.to_json()), "writer": self._writer}
        try:
            data = json.dumps(facts, ensure_ascii=False, separators=(",", ":")).encode()
            self._storage.create(_path(self._number + 1), data)
        except AlreadyExists:
            raise PositionsMoved(self.url) from None
        numbers = self._numbers()
        if max(numbers, default=0) > self._number + 1:
            self._storage.delete([_path(self._number + 1)])
            raise PositionsMoved(self.url)
        self._storage.make_durable()
        self._number += 1
        self._storage.delete([_path(number) for number in numbers if number < self._number - 1])

    def _numbers(self) -> list[int]:
        _, objects = self._storage.list_folder("")
        names = [one.name.removesuffix(_SUFFIX) for one in objects if one.name.endswith(_SUFFIX)]
        return [int(name) for name in names if name.isdecimal()]


def _path(number: int) -> str:
    return f"{number:0{_DIGITS}}{_SUFFIX}"
