"""A compaction of the metadata table copies what did not change from the older base file."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pytest

import lakemark
from lakemark.codec.bloom import DYNAMIC_V0, BloomFilter
from lakemark.codec.hfile import Entries, HFileReader, hfile_splice
from lakemark.codec.hfile.file_info import MAX_KEY, MIN_KEY
from lakemark.codec.hfile.hfile_splice import Splice
from lakemark.metadata import metadata_files
from lakemark.metadata.metadata_files import BaseContent, changed_base_file
from lakemark.metadata.record_changes import RecordChanges
from tests.unit.operations.tables import SCHEMA, contents, rows


def entries(*keys: str, value: bytes = b"v") -> Entries:
    return Entries(
        pa.array([key.encode() for key in keys], pa.binary()),
        pa.array([value] * len(keys), pa.binary()),
    )


def reader_of(content: bytes) -> HFileReader:
    return HFileReader(io.BytesIO(content), len(content), "f")


def binary(*keys: str) -> pa.BinaryArray:
    return pa.array([key.encode() for key in keys], pa.binary())


def changed(base: bytes, written: Entries, *deleted: str) -> BaseContent | None:
    changes = RecordChanges(written, binary(*deleted))
    return changed_base_file(reader_of(base), changes, 7, "f")


def test_changed_file_equals_one_that_is_written_again() -> None:
    base = BaseContent.of(entries("b", "c", "e"), 3).content
    found = changed(base, entries("a", "c", "f"))
    assert found is not None
    whole = reader_of(BaseContent.of(entries("a", "b", "c", "e", "f"), 7).content)
    ours = reader_of(found.content)
    assert found.count == ours.num_entries == 5
    assert ours.file_info == whole.file_info
    assert [*ours.scan()] == [*whole.scan()]
    # The new value of "c" does not count as another key.
    assert ours.meta_block("bloomFilter") == whole.meta_block("bloomFilter")


def test_bloom_filter_and_range_of_a_changed_file_cover_its_keys() -> None:
    base = BaseContent.of(entries("b", "c", "e"), 3).content
    found = changed(base, entries("a", "z"), "c", "unknown")
    assert found is not None
    reader = reader_of(found.content)
    bloom = reader.meta_block("bloomFilter")
    assert bloom is not None
    might = BloomFilter.parse(bloom.decode(), DYNAMIC_V0).might_contain
    assert might(pa.array(["a", "b", "c", "e", "z"])).all()
    assert not might(pa.array(["unknown"])).any()
    assert (reader.file_info[MIN_KEY], reader.file_info[MAX_KEY]) == (b"a", b"z")
    again = changed(found.content, entries("q"))
    assert again is not None and again.count == 5


def test_file_is_written_again_if_its_bloom_filter_has_too_many_deleted_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metadata_files, "_SPARE_IN_BLOOM", 0)
    many = [f"k{number:03d}" for number in range(100)]
    found = changed(BaseContent.of(entries(*many), 3).content, entries(), *many[:60])
    assert found is not None and found.count == 40
    assert changed(found.content, entries("new")) is None


def test_file_without_usual_bloom_filter_is_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    base = metadata_files._hfile(entries("a"), 3)
    assert changed(base, entries("b")) is None
    assert changed(BaseContent.of(entries("a"), 3).content, entries("b"), "a") is not None
    assert (
        changed(BaseContent.of(entries("a"), 3).content, entries(), "a") is None
    )  # the last key is unknown


@pytest.mark.parametrize("version", [6, 8, 9])
def test_compactions_of_the_metadata_table_copy_blocks(
    version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spliced: list[Splice] = []

    def note(*arguments: object) -> Splice | None:
        found = hfile_splice.splice_hfile(*arguments)  # type: ignore[arg-type]
        spliced.extend([] if found is None else [found])
        return found

    monkeypatch.setattr(metadata_files, "splice_hfile", note)
    table = lakemark.create(
        tmp_path / "t",
        schema=SCHEMA,
        record_key="id",
        partition_by="region",
        ordering="ts",
        version=version,
    )
    for number in range(1, 25):
        table.upsert(rows(("a", "north", number, number), (f"{number}", "south", 1, 0)))
        if number % 7 == 0:
            table.compact()
            table.clean(retain_commits=1)
    assert len(spliced) >= 2
    assert table.metadata_differences() == []
    found = contents(lakemark.open(tmp_path / "t"))
    assert found["a"] == ("north", 24, 24) and len(found) == 25
    assert lakemark.open(tmp_path / "t").scan(where="v = 24").to_table().num_rows == 1
