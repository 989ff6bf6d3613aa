"""The position of a change in the log of its database, by which versions of a row are ordered.

A row has one column for it, ``_position``. A later change of a row has a greater position:

postgres    ``lsn``, or the position of the last commit before the change if it is greater (the
            first part of ``sequence``). The rows of a snapshot have the position at which it was
            taken. A transaction that was open then has changes before this position, although it
            was committed after it. Changes of one row have the order of their commits either way,
            because a transaction changes a row only after the commit of the change before
mysql       the number of the binlog ``file`` times 2^32, plus ``pos``
sqlserver   the text ``commit_lsn/change_lsn``; both have a fixed width. The events of a snapshot
            have no ``change_lsn``, so they come before the changes of the same commit
mongodb     ``ts_ms`` (whole seconds) times 1,000,000, plus ``ord``, the number of the operation
            within its second

Source: the field ``source`` in the documentation of Debezium's connectors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from transforms.decode.envelopes.event_fields import value_of

Database = Literal["postgres", "mysql", "sqlserver", "mongodb"]

POSITION = "_position"

#: The number of a binlog file is the digits after the last point of its name.
_BINLOG_NUMBER = r"\.(?P<number>\d{1,10})$"
_LAST_BINLOG = 2**31 - 1
#: The last milliseconds whose position fits 64 bits, in the year 2262.
_LAST_CLUSTER_TIME = 2**63 // 1_000_000 - 2**12
#: ``sequence`` of Postgres is a text with two numbers, ``["24023119","24023128"]``; the first one
#: may be null.
_LAST_COMMIT = r'^\s*\[\s*"(?P<lsn>\d{1,18})"'


@dataclass(frozen=True, slots=True)
class LogPosition:
    """How the position of a change is computed.

    Attributes:
        fields: the fields of the event that it is computed from.
        type: the type of the column.
        compute: returns the positions of events; null if a field is null or not valid.
    """

    fields: tuple[str, ...]
    type: pa.DataType
    compute: Callable[[pa.Table], pa.Array]


def _lsn(events: pa.Table) -> pa.Array:
    lsn = value_of(events, "source.lsn")
    found = pc.extract_regex(value_of(events, "source.sequence"), _LAST_COMMIT)
    last_commit = pc.struct_field(found, "lsn").cast(pa.int64())
    return pc.if_else(lsn.is_valid(), pc.max_element_wise(lsn, last_commit), None)


def _binlog(events: pa.Table) -> pa.Array:
    found = pc.extract_regex(value_of(events, "source.file"), _BINLOG_NUMBER)
    number = pc.struct_field(found, "number").cast(pa.int64())
    number = pc.if_else(pc.less_equal(number, _LAST_BINLOG), number, None)
    return pc.add(pc.multiply(number, 2**32), value_of(events, "source.pos"))


def _commit_and_change(events: pa.Table) -> pa.Array:
    change = pc.fill_null(value_of(events, "source.change_lsn"), "")
    return pc.binary_join_element_wise(value_of(events, "source.commit_lsn"), change, "/")


def _cluster_time(events: pa.Table) -> pa.Array:
    times = value_of(events, "source.ts_ms")
    last = _LAST_CLUSTER_TIME
    is_valid = pc.and_(pc.less_equal(times, last), pc.greater_equal(times, -last))
    scaled = pc.multiply(pc.if_else(is_valid, times, None), 1_000_000)
    return pc.add(scaled, value_of(events, "source.ord").cast(pa.int64()))


LOG_POSITIONS: Mapping[Database, LogPosition] = {
    "postgres": LogPosition(("source.lsn", "source.sequence"), pa.int64(), _lsn),
    "mysql": LogPosition(("source.file", "source.pos"), pa.int64(), _binlog),
    "sqlserver": LogPosition(
        ("source.commit_lsn", "source.change_lsn"), pa.string(), _commit_and_change
    ),
    "mongodb": LogPosition(("source.ts_ms", "source.ord"), pa.int64(), _cluster_time),
}
