"""Finds the file group (shard) of a metadata partition that contains a key.

A partition has a fixed number of file groups, whose ids are ``<prefix><number>-0``. The number of a
key's file group is the Java string hash of the key, modulo the count of file groups. If the keys of
a record index are unique only within a partition of the data table, each data partition has its own
series of file groups (``partition_shards``).
Source: ``HoodieTableMetadataUtil.mapRecordKeyToFileGroupIndex``, ``getFileIDForFileGroup`` and
``getFileGroupIndexFromFileId`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakemark.codec.hfile.selection import Keys
from lakemark.codec.java_hash import string_hash
from lakemark.errors import CorruptData
from lakemark.model.file_slice import FileSlice

_FILE_ID = re.compile(r"(.*?)([0-9]+)(?:-0)?")


def shards_of(keys: pa.Array, count: int | npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the number of the file group of each key.

    Args:
        keys: strings, or binaries in UTF-8, without nulls.
        count: number of file groups in the series; an array if keys are of several series.
    """
    hashes = string_hash(keys)
    # Java: abs(abs(h) % count), where the smallest integer is its own absolute value.
    numbers: npt.NDArray[np.int64] = np.abs(np.fmod(np.abs(hashes).astype(np.int64), count))
    return numbers


def by_shard(slices: Sequence[FileSlice], wanted: Keys) -> list[tuple[FileSlice, Keys]]:
    """Return the file groups that may contain some of the keys, each with those keys.

    Raises:
        CorruptData: a file id is not ``<prefix><number>-0``, or the numbers have a gap.
    """
    parts: list[tuple[FileSlice, Keys]] = []
    for series in shard_series(slices).values():
        numbers = shards_of(wanted.keys, len(series))
        divided = divide_rows([wanted.keys], numbers, len(series))
        parts += [
            (file_slice, Keys(keys))
            for file_slice, (keys,) in zip(series, divided, strict=True)
            if len(keys)
        ]
    return parts


def divide_rows(
    columns: Sequence[pa.Array], numbers: npt.NDArray[np.int64], count: int
) -> list[list[pa.Array]]:
    """Divide rows among the file groups of a series; the rows of a group keep their order.

    Args:
        columns: columns of the same length.
        numbers: the number of the file group of each row.
        count: number of file groups in the series.

    Returns:
        The columns of each file group, in the order of the numbers.
    """
    # NumPy sorts small integers in linear time.
    is_small = count <= np.iinfo(np.uint16).max
    order = np.argsort(numbers.astype(np.uint16) if is_small else numbers, kind="stable")
    ends = np.cumsum(np.bincount(numbers, minlength=count)).tolist()
    divided = [column.take(pa.array(order)) for column in columns]
    return [
        [column.slice(start, end - start) for column in divided]
        for start, end in pairwise([0, *ends])
    ]


def shard_series(slices: Iterable[FileSlice]) -> dict[str, list[FileSlice]]:
    """Return the file groups for each prefix of ids, in the order of their numbers.

    Raises:
        CorruptData: as for ``by_shard``.
    """
    numbered: dict[str, dict[int, FileSlice]] = {}
    for file_slice in slices:
        prefix, number = _parse(file_slice)
        numbered.setdefault(prefix, {})[number] = file_slice
    for prefix, series in numbered.items():
        if max(series) >= len(series):
            actual = f"file groups {sorted(series)}"
            raise CorruptData(prefix, None, "file groups numbered from 0 without a gap", actual)
    return {prefix: [series[n] for n in sorted(series)] for prefix, series in numbered.items()}


def file_ids(prefix: str, count: int) -> list[str]:
    """Return the ids of the file groups of a series, in the order of their numbers."""
    return [f"{prefix}{number:04d}-0" for number in range(count)]


def parse_file_id(file_id: str) -> tuple[str, int] | None:
    """Return the prefix and the number of a file id; None if it has another form."""
    match = _FILE_ID.fullmatch(file_id)
    return None if match is None else (match.group(1), int(match.group(2)))


def _parse(file_slice: FileSlice) -> tuple[str, int]:
    parsed = parse_file_id(file_slice.group.file_id)
    if parsed is None:
        path = file_slice.group.partition_path
        raise CorruptData(path, None, "a file id <prefix><number>-0", file_slice.group.file_id)
    return parsed
