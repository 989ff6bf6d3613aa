"""Records of listings equal Apache Hudi's, and another decoder and the lister read them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.metadata.file_records import FilesOfPartition, encode_files
from lakemark.metadata.metadata_file_lister import MetadataFileLister
from lakemark.metadata.record_changes import RecordChanges
from lakemark.model.file_slice import ALL_PARTITIONS
from tests.depth import examples
from tests.unit.metadata.written_tables import decoded, keys_of, written_table

PATHS = st.sampled_from(["", "a", "a/b", "day=2026-11-22", "naïve/点 😀", "é" * 90])
NAMES = st.sampled_from(
    [f"{n:08d}-0000-0000-0000-000000000000-0_0-1-2_1.parquet" for n in range(9)]
)

#: A model: sizes by name, by partition.
Listing = dict[str, dict[str, int]]


def test_a_listing_is_apaches_record() -> None:
    files = FilesOfPartition("", {"b.parquet": 2**33, "a.parquet": 7}, ["c.parquet"])
    changes = encode_files([files], [""], ["deleted"])
    of_root, listing = (record for _, record in decoded(changes.written))
    assert keys_of(changes.written.keys) == [".", ALL_PARTITIONS]
    assert keys_of(changes.deleted) == ["deleted"]
    assert (listing["key"], listing["type"]) == ("", 1)
    assert listing["filesystemMetadata"] == {
        ".": {"size": 0, "isDeleted": False},
        "deleted": {"size": 0, "isDeleted": True},
    }
    assert (of_root["key"], of_root["type"]) == ("", 2)
    assert of_root["filesystemMetadata"] == {
        "a.parquet": {"size": 7, "isDeleted": False},
        "b.parquet": {"size": 2**33, "isDeleted": False},
        "c.parquet": {"size": 0, "isDeleted": True},
    }
    others = ("BloomFilterMetadata", "ColumnStatsMetadata", "recordIndexMetadata")
    assert all(of_root[name] is None for name in (*others, "SecondaryIndexMetadata"))


@pytest.mark.parametrize("files", [({"a": 0}, []), ({"a": 1}, ["a"])])
def test_what_readers_refuse_is_not_written(files: tuple[Mapping[str, int], list[str]]) -> None:
    with pytest.raises(AssertionError):
        FilesOfPartition("p", *files)


def test_the_listing_of_no_partitions_is_a_record() -> None:
    ((key, record),) = decoded(encode_files([]).written)
    assert (key, record["type"], record["filesystemMetadata"]) == (ALL_PARTITIONS, 1, {})


@st.composite
def histories(draw: st.DrawFn) -> tuple[Listing, list[RecordChanges]]:
    """Draw commits, and return the listing after them."""
    listing: Listing = {}
    commits = []
    for number in range(draw(st.integers(1, 6))):
        files = []
        for path in draw(st.sets(PATHS, max_size=3)):
            there = listing.setdefault(path, {})
            removed = draw(st.sets(st.sampled_from(sorted(there)), max_size=4)) if there else set()
            added = {f"{number}{name}": len(name) for name in draw(st.sets(NAMES, max_size=4))}
            listing[path] = {n: s for n, s in (there | added).items() if n not in removed}
            files.append(FilesOfPartition(path, added, removed))
        untouched = sorted(listing.keys() - {one.partition_path for one in files})
        deleted = draw(st.sets(st.sampled_from(untouched), max_size=2)) if untouched else set()
        for path in deleted:
            del listing[path]
        commits.append(encode_files(files, [one.partition_path for one in files], deleted))
    return listing, commits


@settings(deadline=None, max_examples=examples(25))
@given(histories())
def test_the_lister_lists_what_was_written(history: tuple[Listing, list[RecordChanges]]) -> None:
    listing, commits = history
    for base, logs in ((None, commits), (commits[0].written, commits[1:])):
        files = MetadataFileLister(written_table("files", base, *logs)).list_files()
        found = {
            path: {str(file.name): file.size_bytes for file in of_path}
            for path, of_path in files.items()
        }
        assert found == listing
