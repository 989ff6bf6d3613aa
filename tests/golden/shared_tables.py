"""Golden tables that tests share: each is unpacked once for all tests of a process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.golden.golden_table import GoldenTable, open_golden, unpack

#: Size and modification time of each file.
_Seen = dict[Path, tuple[int, int]]


@dataclass
class SharedTables:
    """Tables for tests that change nothing; other tests ``unpack`` their own copy.

    Attributes:
        folder: the folder of the unpacked tables.
    """

    folder: Path
    _seen: dict[str, _Seen] = field(default_factory=dict)

    def __getitem__(self, name: str) -> GoldenTable:
        """Open the table of that name; unpack it first if needed."""
        if name in self._seen:
            return open_golden(name, self.folder)
        table = unpack(name, self.folder)
        self._seen[name] = _files(self.folder / name)
        return table

    def check_unchanged(self) -> None:
        """Fail if a test has changed a table."""
        for name, seen in self._seen.items():
            assert _files(self.folder / name) == seen, f"a test has changed {name}"


@pytest.fixture(scope="session")
def shared_tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedTables]:
    """All golden tables, for tests that change nothing."""
    tables = SharedTables(tmp_path_factory.mktemp("golden"))
    yield tables
    tables.check_unchanged()


def _files(folder: Path) -> _Seen:
    found = {path: path.stat() for path in folder.rglob("*") if path.is_file()}
    return {path: (stat.st_size, stat.st_mtime_ns) for path, stat in found.items()}
