"""Table versions, and what differs between them.

6  Hudi 0.14 and 0.15: the timeline lies in ``.hoodie`` itself, commits are JSON, completion times
   are modification times, and a log names the base file it belongs to.
8  Hudi 1.0: the timeline lies in a folder of its own with completion times in its names, commits
   are Avro, a log names the delta commit that wrote it.
9  Hudi 1.1 and later: as 8; merge mode instead of payload class, other indexes.

Source: ``HoodieTableVersion`` of Apache Hudi 1.2.0. Version 7 was a bridge between releases and is
not used; versions before 6 are upgraded by any Hudi since 0.14.
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
    def of(cls, number: int, place: str) -> FormatVersion:
        """The version of that number.

        Args:
            number: ``hoodie.table.version``.
            place: names the table in the error.

        Raises:
            Unsupported: a version that this project does not read.
        """
        if number in cls.__members__.values():
            return cls(number)
        known = ", ".join(str(int(version)) for version in cls)
        message = (
            f"table {place} is of version {number}; versions {known} can be read, "
            "upgrade it with Apache Hudi"
        )
        raise Unsupported(message)

    @property
    def timeline_layout(self) -> int:
        """Layout of the timeline, 1 or 2 (``TimelineLayoutVersion``)."""
        return 1 if self is FormatVersion.V6 else 2

    @property
    def column_statistics(self) -> str:
        """Version of the column statistics that its metadata table keeps, ``V1`` or ``V2``."""
        return "V2" if self is FormatVersion.V9 else "V1"

    @property
    def logs_name_their_slice(self) -> bool:
        """Whether the instant in a log's name is its slice's, and not its own commit's.

        Such a log holds blocks of several commits, so readers ask of each block whether its commit
        is visible; otherwise a log is visible or not as a whole.
        """
        return self is FormatVersion.V6
