"""Mergers that users write for their own tables, in merge mode ``CUSTOM``.

Write a ``VectorMerger`` (columns) or a ``BufferedRecordMerger`` (record by record), check it with
``check_merger``, and name it as ``package.module:Class``.
"""

from table.merge.custom.buffered_record import BufferedRecord, Operation
from table.merge.custom.buffered_record_merger import BufferedRecordMerger
from table.merge.custom.custom_merger import CustomMerger
from table.merge.custom.loading import load_merger
from table.merge.custom.record_context import RecordContext
from table.merge.custom.records import Records, chosen
from table.merge.custom.rules import check_merger
from table.merge.custom.vector_merger import VectorMerge, VectorMerger

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
