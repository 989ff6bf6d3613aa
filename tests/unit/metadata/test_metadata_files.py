"""Files of the metadata table equal Apache Hudi's, except for values that depend on the writer."""

from __future__ import annotations

import io
import json
import tarfile

import pyarrow as pa
import pytest

from lakemark.codec.hfile import Entries, HFileReader
from lakemark.codec.hfile.file_info import CREATED_MS, SCHEMA
from lakemark.log.delete_block import read_deletes
from lakemark.log.log_block import BlockType, HeaderKey, LogBlock
from lakemark.log.log_reader import read_blocks
from lakemark.metadata import metadata_files
from lakemark.metadata.file_records import FilesOfPartition, encode_files
from lakemark.metadata.metadata_files import BaseContent, first_log_file, log_file
from lakemark.metadata.record_changes import RecordChanges, is_stored_schema, stored_schema
from tests.golden.golden_table import ARCHIVES
from tests.unit.metadata.written_tables import keys_of

INSTANT = "20261122023000000"
TABLE = "v9_cow_column_stats"


def files_of_apache(ending: str) -> dict[str, bytes]:
    """Read the files of a metadata table of Apache Hudi by their name."""
    found = {}
    with tarfile.open(ARCHIVES / f"{TABLE}.tar.gz") as archive:
        for member in archive:
            if "/.hoodie/metadata/" in member.name and member.name.endswith(ending):
                stream = archive.extractfile(member)
                assert stream is not None
                found[member.name.rpartition("/")[2]] = stream.read()
    return found


def test_a_file_group_begins_as_apaches_do() -> None:
    apaches = files_of_apache(".log.1_0-0-0")
    assert len(apaches) == 4
    for name, data in apaches.items():
        assert first_log_file(name.split("_")[1].partition(".")[0]) == data


def test_a_base_file_has_apaches_bloom_filter_and_key_range() -> None:
    for name, data in files_of_apache(".hfile").items():
        apaches = HFileReader(io.BytesIO(data), len(data), name)
        blocks = list(apaches.scan())
        entries = Entries(
            pa.concat_arrays([b.keys for b in blocks]), pa.concat_arrays([b.values for b in blocks])
        )
        created_ms = int.from_bytes(apaches.file_info[CREATED_MS])
        written = BaseContent.of(entries, created_ms).content
        ours = HFileReader(io.BytesIO(written), len(written), name)
        assert ours.meta_block("bloomFilter") == apaches.meta_block("bloomFilter")
        # The schema is Apache's without its comments.
        assert ours.file_info == {**apaches.file_info, SCHEMA: stored_schema().encode()}
        assert [*ours.scan()] == blocks


def test_many_records_of_a_log_are_divided_into_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = encode_files(
        [FilesOfPartition(f"p{n}", {"a": n + 1}) for n in range(10)], [], ["gone"]
    )
    one_block = log_file(changes, "files", INSTANT, created_ms=7)
    largest = max(len(value.as_py()) for value in changes.written.values)
    monkeypatch.setattr(metadata_files, "_MAX_BLOCK_BYTES", 3 * largest)
    data = log_file(changes, "files", INSTANT, created_ms=7)
    *written, deleted = read_blocks(io.BytesIO(data), len(data), "some.log")
    assert len(written) >= 3
    assert deleted.type is BlockType.DELETE
    found = [entry for block in written for entry in entries_of(block)]
    whole, _ = read_blocks(io.BytesIO(one_block), len(one_block), "some.log")
    assert found == entries_of(whole)
    assert len(found) == len(changes.written.keys)


def entries_of(block: LogBlock) -> list[tuple[object, object]]:
    content = block.content.read()
    reader = HFileReader(io.BytesIO(content), len(content), block.path)
    return [
        (key.as_py(), value.as_py())
        for some in reader.scan()
        for key, value in zip(some.keys, some.values, strict=True)
    ]


def test_a_log_has_what_was_written_before_what_was_deleted() -> None:
    changes = encode_files([FilesOfPartition("p", {"a": 1})], ["p"], ["gone"])
    data = log_file(changes, "files", INSTANT, created_ms=7)
    written, deleted = read_blocks(io.BytesIO(data), len(data), "some.log")
    assert [b.type for b in (written, deleted)] == [BlockType.HFILE_DATA, BlockType.DELETE]
    for block in (written, deleted):
        assert block.instant_time == INSTANT
        assert block.header[HeaderKey.SCHEMA] == stored_schema()
    content = written.content.read()
    reader = HFileReader(io.BytesIO(content), len(content), "some.log")
    assert keys_of(pa.concat_arrays([b.keys for b in reader.scan()])) == ["__all_partitions__", "p"]
    assert reader.meta_block("bloomFilter") is None
    records = read_deletes(deleted)
    assert records.record_keys.to_pylist() == ["gone"]
    assert records.partition_paths.to_pylist() == ["files"]
    assert records.commit_time.all()


def test_the_same_changes_are_the_same_bytes() -> None:
    one = encode_files([FilesOfPartition("p", {"a": 1, "b": 2}, ["c", "d"])], ["p", "q"])
    other = encode_files([FilesOfPartition("p", {"b": 2, "a": 1}, ["d", "c"])], ["q", "p"])
    assert log_file(one, "files", INSTANT, 1) == log_file(other, "files", INSTANT, 1)


def test_no_changes_are_no_log() -> None:
    with pytest.raises(AssertionError):
        log_file(RecordChanges.union([]), "files", INSTANT, 1)


def test_a_schema_is_read_with_apaches_properties_and_without() -> None:
    schema = json.loads(stored_schema())
    schema["doc"] = schema["fields"][0]["doc"] = "words"
    assert is_stored_schema(json.dumps(schema))
    schema["fields"].pop()
    assert not is_stored_schema(json.dumps(schema))
