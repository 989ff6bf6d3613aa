"""A cache of decoded values, because the processes of a history decode the same bytes repeatedly.

Each function here depends on its arguments alone, and its callers do not change its result.
Requests to the store, and decisions based on them, are not cached.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pytest

from lakemark.codec.hfile.file_info import parse_file_info
from lakemark.codec.hfile.hfile_data_block import parse_entries
from lakemark.config.properties_text import parse_properties
from lakemark.log.log_block import HeaderKey, LogBlock
from lakemark.metadata.payload import read_payload
from lakemark.timeline.archive_log import _records
from lakemark.timeline.content import Record, decode_commit
from lakemark.timeline.layout import LayoutV1, LayoutV2

#: The most results of each function. A history needs fewer; more would only use memory.
_MOST = 2048

_cached_properties = lru_cache(_MOST)(parse_properties)


def _properties(data: bytes) -> dict[str, str]:
    return dict(_cached_properties(data))


@lru_cache(_MOST)
def _cached_payload(values: tuple[bytes, ...], schema: str, payload: str, path: str) -> pa.Array:
    return read_payload(pa.array(values, pa.binary()), schema, payload, path)


def _payload(values: pa.BinaryArray, schema: str, payload: str, path: str) -> pa.Array:
    return _cached_payload(tuple(values.to_pylist()), schema, payload, path)


_cached_records: dict[tuple[object, ...], Sequence[Record]] = {}


def _archived(block: LogBlock) -> Sequence[Record]:
    key = (block.type, block.content.read(), block.header.get(HeaderKey.SCHEMA))
    if key not in _cached_records:
        if len(_cached_records) == _MOST:
            _cached_records.clear()
        _cached_records[key] = list(_records(block))
    return _cached_records[key]


_CACHED: Mapping[str, Callable[..., Any]] = {
    "lakemark.config.table_properties.parse_properties": _properties,
    "lakemark.timeline.timeline_reader.decode_commit": lru_cache(_MOST)(decode_commit),
    "lakemark.timeline.layout.LayoutV1.parse": lru_cache(_MOST)(LayoutV1.parse),
    "lakemark.timeline.layout.LayoutV2.parse": lru_cache(_MOST)(LayoutV2.parse),
    "lakemark.timeline.archive_log._records": _archived,
    "lakemark.codec.hfile.reader.parse_entries": lru_cache(_MOST)(parse_entries),
    "lakemark.codec.hfile.reader.parse_file_info": lru_cache(_MOST)(parse_file_info),
    "lakemark.metadata.slice_rows.read_payload": _payload,
}


def cache_results(patch: pytest.MonkeyPatch) -> None:
    """Have the code under test use the cached results."""
    for target, function in _CACHED.items():
        patch.setattr(target, function)
