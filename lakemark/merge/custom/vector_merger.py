"""Mergers of columns: many records with one call."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import pyarrow as pa

from lakemark.merge.custom.custom_merger import CustomMerger
from lakemark.merge.custom.records import Records
from lakemark.merge.key_codes import Mask


@dataclass(frozen=True, slots=True, eq=False)
class VectorMerge:
    """What versions of records come to.

    Attributes:
        rows: in the columns of ``Records.rows``, row by row of the same records.
        keep: False where the result is a delete; its row keeps the data that there is.
    """

    rows: pa.Table
    keep: Mask


class VectorMerger(CustomMerger):
    """Merges versions of many records at once."""

    @abstractmethod
    def merge(self, older: Records, newer: Records) -> VectorMerge:
        """What two versions of each record come to.

        Row ``i`` of both is the same record, and no record is there twice. The result of a row
        depends on this row alone, and merging is associative. Ordering columns keep a value.

        Args:
            older: what earlier changes have come to, or the row of the base file.
            newer: a later change.
        """

    def partial_merge(self, older: Records, newer: Records) -> VectorMerge:
        """The same of records one or both of which were written without some columns.

        What is returned counts as written where one of the two was. Unless overridden, each takes
        the columns that it leaves open from the other, and ``merge`` decides.
        """
        return self.merge(older.with_open_columns_of(newer), newer.with_open_columns_of(older))
