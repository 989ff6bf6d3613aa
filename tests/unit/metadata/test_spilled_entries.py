"""Records of an index that is built on local disk, against a model in memory."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.codec.hfile import Entries
from lakemark.metadata import spilled_entries
from lakemark.metadata.index_sources import BLOOM_FILTERS
from lakemark.metadata.new_index import IndexContent, Source
from lakemark.metadata.shards import shards_of
from lakemark.metadata.spilled_entries import SpilledEntries
from lakemark.storage import StorageLocation, open_storage
from tests.depth import examples

#: The records of each source: keys, some of which several sources have.
KEYS = st.text("ab\0é😀", min_size=1, max_size=3).map(str.encode)
SOURCES = st.lists(st.lists(KEYS, max_size=30), max_size=8)


def entries_of(keys: list[bytes], source: int) -> Entries:
    values = [b"%d:%s" % (source, key) for key in keys]
    return Entries(pa.array(keys, pa.binary()), pa.array(values, pa.binary()))


@settings(max_examples=examples(60), deadline=None)
@given(SOURCES, st.sets(st.integers(0, 7)), st.integers(1, 7), st.sampled_from([1, 200, 1 << 20]))
def test_each_shard_has_its_records_in_order(
    sources: list[list[bytes]], dropped: set[int], number: int, run_bytes: int
) -> None:
    def place(keys: pa.BinaryArray, _: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        return shards_of(keys, number)

    with SpilledEntries(run_bytes) as spilled:
        for source, keys in enumerate(sources):
            spilled.add(entries_of(keys, source), source)
        for source in dropped:
            spilled.drop(source)
        kept = [
            (key, source)
            for source, keys in enumerate(sources)
            if source not in dropped
            for key in keys
        ]
        assert spilled.count_of(range(len(sources))) == len(kept)
        found = [
            [row for table in tables for row in table.to_pylist()]
            for tables in spilled.shards(number, place)
        ]
    numbers = np.array([source for _, source in kept], np.int32)
    shards = place(pa.array([key for key, _ in kept], pa.binary()), numbers).tolist()
    for shard in range(number):
        expected = [row for row, one in zip(kept, shards, strict=True) if one == shard]
        assert [(row["key"], row["source"]) for row in found[shard]] == sorted(expected)
        assert all(row["value"] == b"%d:%s" % (row["source"], row["key"]) for row in found[shard])


def test_more_shards_than_open_files_are_divided_in_several_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spilled_entries, "_OPEN_SHARDS", 3)
    keys = [b"k%d" % n for n in range(100)]
    with SpilledEntries(100) as spilled:
        spilled.add(entries_of(keys, 0), 0)
        shards = spilled.shards(10, lambda some, _: shards_of(some, 10))
        found = [row["key"] for tables in shards for table in tables for row in table.to_pylist()]
    assert sorted(found) == sorted(keys)


def test_an_index_that_is_sorted_again_needs_no_more_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    storage = open_storage(StorageLocation("memory://again/table"))
    parts = [[entries_of([b"k%d" % n], n)] for n in range(3)]
    prefix = BLOOM_FILTERS.file_id_prefix
    sources = [Source(str(n), n, partial(iter, part), prefix) for n, part in enumerate(parts)]
    with SpilledEntries() as spilled:
        content = IndexContent(BLOOM_FILTERS, storage, spilled)
        content.update(sources[:2], lambda: None)
        content.encode()
        content.update(sources[1:], lambda: None)
        records = content.encode()
        assert len([*tmp_path.rglob("*.hfile")]) == len(records.file_ids)
        assert sum(one.count for one in records.read()) == 2
