"""A golden table as an archive: with modification times, without Hadoop's checksum files."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path


def pack(folder: Path, archive: Path) -> None:
    """Write ``folder``, under its name, to a ``tar.gz``."""
    with gzip.GzipFile(archive, "wb", mtime=0) as zipped:
        with tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for path in sorted([folder, *folder.rglob("*")]):
                if not path.name.endswith(".crc"):
                    tar.add(path, path.relative_to(folder.parent), False, filter=_without_owner)


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
