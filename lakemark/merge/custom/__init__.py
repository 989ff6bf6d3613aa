"""The public API of custom mergers, for tables in merge mode ``CUSTOM``.

To write a merger, derive a class from ``VectorMerger``, which merges columns, or from
``BufferedRecordMerger``, which merges record by record. Check the merger with ``check_merger``, and
pass its path as ``package.module:Class`` or ``FILE.py:Class``.
"""

from typing import TYPE_CHECKING, Any

from lakemark.merge.custom.api import BufferedRecordMerger, CustomMerger, VectorMerge, VectorMerger
from lakemark.merge.custom.buffered_record import BufferedRecord, Operation, RecordContext
from lakemark.merge.custom.load import load_merger
from lakemark.merge.custom.records import Records, choose_rows

if TYPE_CHECKING:
    from lakemark.merge.custom.check import check_merger

__all__ = [
    "BufferedRecord",
    "BufferedRecordMerger",
    "CustomMerger",
    "Operation",
    "RecordContext",
    "Records",
    "VectorMerge",
    "VectorMerger",
    "check_merger",
    "choose_rows",
    "load_merger",
]


def __getattr__(name: str) -> Any:
    """Load ``check_merger`` when it is first used, because only tests of mergers need it."""
    if name != "check_merger":
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    from lakemark.merge.custom.check import check_merger

    return check_merger
