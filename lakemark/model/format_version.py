"""Table versions and their differences.

2  Hudi 0.9: delete blocks list keys only. The properties have no checksum.
3  Hudi 0.10: as version 2; instant times have milliseconds.
4  Hudi 0.11: the properties have a checksum. Delete blocks also have ordering values.
5  Hudi 0.12 and 0.13: as version 4, with another default partition folder.
6  Hudi 0.14 and 0.15: the timeline is in ``.hoodie`` itself, and commits are JSON. An instant's
   completion time is the modification time of its file. The name of a log contains the instant of
   the file slice. All of this holds for versions 2 to 5, too. In version 6, delete blocks are Avro.
8  Hudi 1.0: the timeline has its own folder, and commits are Avro. The file names of instants
   contain completion times. The name of a log contains the instant of the delta commit that wrote
   the log.
9  Hudi 1.1 and later: as version 8, but with merge modes instead of payload classes, and with other
   indexes.

lakemark reads all these versions, but writes only ``WRITTEN``. It does not read the metadata tables
of versions before 6, because they have other forms. A data file is read according to its own
format version, not that of the table, because an upgrade keeps data files.

Source: ``HoodieTableVersion`` of Apache Hudi 1.2.0. No release of Hudi wrote version 7. To upgrade
a table from a version before 2, use Hudi 0.14 or later.
"""

from __future__ import annotations

from enum import IntEnum

from lakemark.errors import Unsupported
from lakemark.model.action import Action


class FormatVersion(IntEnum):
    """Version of a table's format (``hoodie.table.version``)."""

    V2 = 2
    V3 = 3
    V4 = 4
    V5 = 5
    V6 = 6
    V8 = 8
    V9 = 9

    @classmethod
    def of(cls, number: int, url: str) -> FormatVersion:
        """Return the version with this number.

        Args:
            number: the value of ``hoodie.table.version``.
            url: URL of the table, for the error message.

        Raises:
            Unsupported: lakemark does not read the version.
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
    def is_written(self) -> bool:
        """Whether lakemark writes tables of this version; if not, they are upgraded first."""
        return self >= FormatVersion.V6

    @property
    def timeline_layout(self) -> int:
        """Layout of the timeline, 1 or 2 (``TimelineLayoutVersion``)."""
        return 1 if self <= FormatVersion.V6 else 2

    @property
    def clustering_action(self) -> Action:
        """The action of a pending clustering. It completes as a replace commit in all versions."""
        return Action.REPLACE_COMMIT if self.timeline_layout == 1 else Action.CLUSTERING

    @property
    def column_statistics(self) -> str:
        """Version of the column statistics in the metadata table, ``V1`` or ``V2``."""
        return "V2" if self is FormatVersion.V9 else "V1"

    @property
    def logs_name_their_slice(self) -> bool:
        """Whether logs are named after the instant of their slice, not of their own commit.

        Such a log may have blocks of several commits, so readers check for each block whether its
        commit is visible. In other versions, all blocks of a log belong to the same commit.
        """
        return self.timeline_layout == 1


#: The versions that lakemark writes.
WRITTEN = tuple(version for version in FormatVersion if version.is_written)
