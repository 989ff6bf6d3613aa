"""Table versions and their differences.

6  Hudi 0.14 and 0.15: the timeline is in ``.hoodie`` itself, commits are JSON, completion times are
   modification times, and a log is named after its base file.
8  Hudi 1.0: the timeline has its own folder and completion times in file names, commits are Avro,
   and a log is named after the delta commit that wrote it.
9  Hudi 1.1 and later: as 8; merge mode instead of payload class, other indexes.

Source: ``HoodieTableVersion`` of Apache Hudi 1.2.0. Version 7 existed only between releases. Any
Hudi since 0.14 upgrades versions before 6.
"""

from __future__ import annotations

from enum import IntEnum

from lakemark.errors import Unsupported


class FormatVersion(IntEnum):
    """Version of a table's format, chosen when the table opens."""

    V6 = 6
    V8 = 8
    V9 = 9

    @classmethod
    def of(cls, number: int, url: str) -> FormatVersion:
        """Return the version of that number.

        Args:
            number: ``hoodie.table.version``.
            url: of the table, for the error.

        Raises:
            Unsupported: this project does not read the version.
        """
        if number in cls.__members__.values():
            return cls(number)
        known = ", ".join(str(int(version)) for version in cls)
        message = (
            f"table {url} has version {number}, but only versions {known} can be read; upgrade it "
            "with Apache Hudi"
        )
        raise Unsupported(message)

    @property
    def timeline_layout(self) -> int:
        """Layout of the timeline, 1 or 2 (``TimelineLayoutVersion``)."""
        return 1 if self is FormatVersion.V6 else 2

    @property
    def column_statistics(self) -> str:
        """Version of the column statistics in its metadata table, ``V1`` or ``V2``."""
        return "V2" if self is FormatVersion.V9 else "V1"

    @property
    def logs_name_their_slice(self) -> bool:
        """Whether the instant in a log's name is that of its slice, not that of its own commit.

        Such a log has blocks of several commits, so readers check for each block whether its commit
        is visible. Otherwise a log is visible or not as a whole.
        """
        return self is FormatVersion.V6
