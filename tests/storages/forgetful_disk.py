"""A folder of the local disk, and the states in which a power failure may leave it.

The calls of ``os.fsync`` show what the code under test forces to the disk. Everything else may be
lost:

- each name that was created or deleted since its folder was forced may exist or not;
- a file that was never forced may be empty, cut off or whole.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from random import Random
from typing import Protocol, TypeAlias

import pytest

#: The entries of a folder by name: the inode of a file, None for a folder.
_Entries: TypeAlias = dict[str, int | None]


class Loss(Protocol):
    """Decides what a power failure destroys."""

    def keeps_change(self) -> bool:
        """Decide whether a change of a folder that was not forced survives."""
        ...

    def kept_bytes(self, size_bytes: int) -> int:
        """Decide how many bytes of a file that was not forced survive."""
        ...


class Everything:
    """Everything that was not forced is lost."""

    def keeps_change(self) -> bool:
        return False

    def kept_bytes(self, size_bytes: int) -> int:
        return 0


class Contents:
    """All changes of folders survive. The content of a file survives only if it was forced."""

    def keeps_change(self) -> bool:
        return True

    def kept_bytes(self, size_bytes: int) -> int:
        return 0


class Some:
    """A random part is lost."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def keeps_change(self) -> bool:
        return self._random.random() < 0.5

    def kept_bytes(self, size_bytes: int) -> int:
        return self._random.choice((0, size_bytes // 2, size_bytes))


class ForgetfulDisk:
    """Records what is forced below a folder; the files that exist at first count as forced.

    Args:
        root: the folder, without links in its path.
        vault: an empty folder of the same disk, in which forced contents are kept.
        patch: replaces ``os.fsync``, and restores it afterwards.
    """

    def __init__(self, root: Path, vault: Path, patch: pytest.MonkeyPatch) -> None:
        self._root, self._vault = str(root), vault
        self._folders: dict[str, _Entries] = {}
        self.forced = 0
        for folder, _, names in os.walk(root):
            self._folders[folder] = _entries(folder)
            for name in names:
                self._keep(os.path.join(folder, name))
        patch.setattr("os.fsync", self._fsync)

    def after_power_failure(self, target: Path, loss: Loss) -> None:
        """Copy to ``target``, which must not exist, the files left if the power failed now."""
        self._copy_folder(self._root, target, loss)

    def _fsync(self, descriptor: int) -> None:
        source = os.readlink(f"/proc/self/fd/{descriptor}")
        if source != self._root and not source.startswith(f"{self._root}/"):
            return
        self.forced += 1
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            self._folders[source] = _entries(source)
        else:
            self._keep(source)

    def _keep(self, source: str) -> None:
        """Link the file in the vault.

        The link keeps the content after a deletion, and keeps the inode from being reused.
        """
        kept = self._kept(os.stat(source).st_ino)
        if not kept.exists():
            os.link(source, kept)

    def _kept(self, inode: int) -> Path:
        return self._vault / str(inode)

    def _copy_folder(self, folder: str, target: Path, loss: Loss) -> None:
        target.mkdir()
        forced = self._folders.get(folder, {})
        now = _entries(folder) if os.path.isdir(folder) else {}
        for name in sorted({*forced, *now}):
            kept = now if forced.get(name, 0) == now.get(name, 0) or loss.keeps_change() else forced
            if name not in kept:
                continue
            source, inode = os.path.join(folder, name), kept[name]
            if inode is None:
                self._copy_folder(source, target / name, loss)
            else:
                self._copy_file(source, inode, target / name, loss)

    def _copy_file(self, source: str, inode: int, target: Path, loss: Loss) -> None:
        if self._kept(inode).exists():
            shutil.copy2(self._kept(inode), target)
        elif os.path.exists(source) and os.stat(source).st_ino == inode:
            shutil.copy2(source, target)
            with target.open("r+b") as file:
                file.truncate(loss.kept_bytes(os.stat(source).st_size))
        else:
            target.touch()


def _entries(folder: str) -> _Entries:
    with os.scandir(folder) as found:
        return {one.name: None if one.is_dir() else one.inode() for one in found}
