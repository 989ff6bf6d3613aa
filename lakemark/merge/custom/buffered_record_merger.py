"""Mergers of single records, as the specification's ``HoodieRecordMerger``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from lakemark.merge.custom.buffered_record import BufferedRecord
from lakemark.merge.custom.custom_merger import CustomMerger
from lakemark.merge.custom.record_context import RecordContext


class BufferedRecordMerger(CustomMerger):
    """Merges two versions of one record at a time; called only for records that have two.

    Costs Python for each such pair, where a ``VectorMerger`` costs a few calls for all of them.
    """

    @abstractmethod
    def merge(
        self, older: BufferedRecord, newer: BufferedRecord, context: RecordContext
    ) -> BufferedRecord:
        """What two versions of a record come to; merging is associative.

        Never None. A result that deletes the record has operation ``DELETE``, and the data that
        there is, for merges to come. The ordering value is always set, as the data has it.

        Args:
            older: what earlier changes have come to, or the row of the base file.
            newer: a later change.
            context: of the table.
        """

    def partial_merge(
        self,
        older: BufferedRecord,
        newer: BufferedRecord,
        reader_schema: pa.Schema,
        context: RecordContext,
    ) -> BufferedRecord:
        """The same of records one or both of which were written without some columns.

        Data of the result has only the columns that one of the two was written with. Unless
        overridden, each takes the columns that it leaves open from the other, and ``merge``
        decides; a delete is not filled, and fills with null.

        Args:
            older: as for ``merge``; its data has only what was written.
            newer: the same.
            reader_schema: the table's columns.
            context: of the table.
        """
        nothing = dict.fromkeys(reader_schema.names)
        before = _filled(older, newer, nothing, context)
        return self.merge(before, _filled(newer, older, nothing, context), context)


def _filled(
    record: BufferedRecord,
    other: BufferedRecord,
    nothing: Mapping[str, object],
    context: RecordContext,
) -> BufferedRecord:
    if record.is_delete or record.data is None:
        return record
    given = nothing if other.is_delete or other.data is None else other.data
    whole = replace(record, data={**given, **record.data})
    return replace(whole, ordering_value=context.ordering_value(whole))
