"""The public API of custom mergers, for tables in merge mode ``CUSTOM``.

Write a ``VectorMerger`` (columns) or a ``BufferedRecordMerger`` (record by record), check it with
``check_merger``, and name it as ``package.module:Class``.
"""

from lakemark.merge.custom.buffered_record import BufferedRecord, Operation
from lakemark.merge.custom.buffered_record_merger import BufferedRecordMerger
from lakemark.merge.custom.custom_merger import CustomMerger
from lakemark.merge.custom.loading import load_merger
from lakemark.merge.custom.record_context import RecordContext
from lakemark.merge.custom.records import Records, chosen
from lakemark.merge.custom.rules import check_merger
from lakemark.merge.custom.vector_merger import VectorMerge, VectorMerger

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
    "chosen",
    "load_merger",
]
