"""The reader reads HFiles of Apache Hudi and deeper indexes of HBase, and refuses damaged files."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lakemark.codec.hfile import Entries, HFileReader
from lakemark.codec.hfile.trailer import TRAILER_BYTES
from lakemark.errors import CorruptData, Unsupported
from tests.depth import examples
from tests.unit.codec.hfiles import GZ, NONE, Entry, HFileBuilder, hadoop_vint

GOLDEN = Path(__file__).parent / "golden"
GOLDEN_FILES = sorted(GOLDEN.glob("*.hfile"))

PATCHES = st.binary(min_size=1, max_size=8)
KEYS = st.binary(min_size=1, max_size=6) | st.sampled_from([b"a" * 200, b"\xff", b"\xff\xff"])


def reader_of(data: bytes) -> HFileReader:
    return HFileReader(io.BytesIO(data), len(data), "some.hfile")


def pairs(entries: Iterator[Entries]) -> list[Entry]:
    tables = [pa.Table.from_arrays([*block], ["key", "value"]) for block in entries]
    return [(row["key"], row["value"]) for table in tables for row in table.to_pylist()]


@st.composite
def files(draw: st.DrawFn) -> tuple[list[Entry], bytes]:
    """Draw sorted entries and a file that contains them. A key may occur twice."""
    keys = sorted(draw(st.lists(KEYS, max_size=40)))
    values = draw(st.lists(st.binary(max_size=9), min_size=len(keys), max_size=len(keys)))
    entries = list(zip(keys, values, strict=True))
    builder = HFileBuilder(
        compression=draw(st.sampled_from([GZ, NONE])),
        block_bytes=draw(st.sampled_from([1, 90, 1 << 16])),
        fanout=draw(st.integers(1, 3)),
        levels=draw(st.integers(1, 4)) if entries else 1,
        checksum_bytes=draw(st.sampled_from([0, 4])),
    )
    return entries, builder.build(entries)


@settings(deadline=None)
@given(files())
def test_what_was_written_is_read(file: tuple[list[Entry], bytes]) -> None:
    entries, data = file
    reader = reader_of(data)
    assert pairs(reader.scan()) == entries
    assert reader.num_entries == len(entries)


@settings(deadline=None)
@given(files(), st.lists(KEYS), st.data())
def test_a_lookup_finds_the_entries_of_its_keys(
    file: tuple[list[Entry], bytes], others: list[bytes], data: st.DataObject
) -> None:
    entries, file_bytes = file
    known = st.sampled_from([key for key, _ in entries] or [b"none"])
    wanted = [*others, *data.draw(st.lists(known, max_size=9))]
    found = reader_of(file_bytes).lookup(pa.array([*wanted, None], pa.binary()))
    assert pairs(found) == [entry for entry in entries if entry[0] in wanted]


@settings(deadline=None)
@given(files(), st.lists(st.binary(max_size=2), max_size=4))
@example(([], HFileBuilder().build([])), [b""])
def test_a_lookup_of_prefixes_finds_the_keys_that_begin_with_one(
    file: tuple[list[Entry], bytes], prefixes: list[bytes]
) -> None:
    entries, data = file
    found = pairs(reader_of(data).lookup_prefixes(prefixes))
    assert found == [entry for entry in entries if entry[0].startswith(tuple(prefixes))]


#: Java sorts the last character before the two that precede it here, and UTF-8 after them.
TEXTS = st.text("aé\ue000\uffee\U0001f600", min_size=1, max_size=3).map(str.encode)


@settings(deadline=None)
@given(st.sets(TEXTS, min_size=1), st.sets(TEXTS), st.booleans(), st.data())
def test_keys_are_found_in_the_order_of_java_and_in_that_of_bytes(
    keys: set[bytes], others: set[bytes], is_java: bool, data: st.DataObject
) -> None:
    ordered = sorted(keys, key=utf16_units) if is_java else sorted(keys)
    entries = [(key, b"v" + key) for key in ordered]
    block_bytes, levels = data.draw(st.sampled_from([1, 90, 1 << 16])), data.draw(st.integers(1, 3))
    reader = reader_of(HFileBuilder(block_bytes=block_bytes, levels=levels).build(entries))
    assert pairs(reader.lookup(pa.array([*keys, *others], pa.binary()))) == entries
    for key in (*keys, *others):
        found = pairs(reader.lookup(pa.array([key], pa.binary())))
        assert found == [entry for entry in entries if entry[0] == key]
        found = pairs(reader.lookup_prefixes([key]))
        assert found == [entry for entry in entries if entry[0].startswith(key)]


def utf16_units(text: bytes) -> bytes:
    return text.decode().encode("utf-16-be")


class CountingFile(io.BytesIO):
    """A file that counts the bytes read from it, and the calls."""

    read_bytes = reads = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.read_bytes += len(data)
        self.reads += 1
        return data


@pytest.mark.parametrize("levels", [1, 3])
def test_a_lookup_reads_its_own_blocks_only(levels: int) -> None:
    entries = [(b"key-%06d" % number, bytes(200)) for number in range(10_000)]
    data = HFileBuilder(NONE, block_bytes=4096, fanout=50, levels=levels).build(entries)
    file = CountingFile(data)
    reader = HFileReader(file, len(data), "some.hfile")
    assert file.read_bytes <= 128 << 10
    file.read_bytes = 0
    assert pairs(reader.lookup(pa.array([b"key-000777", b"key-000778"]))) == entries[777:779]
    assert pairs(reader.lookup_prefixes([b"key-00311"])) == entries[3110:3120]
    assert 0 < file.read_bytes < 30_000


def test_neighbouring_blocks_are_read_together() -> None:
    entries = [(b"key-%06d" % number, bytes(200_000)) for number in range(100)]
    data = HFileBuilder(NONE, block_bytes=4096).build(entries)
    file = CountingFile(data)
    reader = HFileReader(file, len(data), "some.hfile")
    file.reads = file.read_bytes = 0
    few = [b"key-%06d" % number for number in (1, 2, 3, 4, 50)]
    assert pairs(reader.lookup(pa.array(few))) == [*entries[1:5], entries[50]]
    assert file.reads == 2
    assert file.read_bytes < 5.1 * 200_000, "blocks that are far from each other are read alone"
    file.reads = 0
    assert pairs(reader.scan()) == entries
    assert file.reads == 5, "20 MB are read in parts of 4 MiB"


@pytest.mark.parametrize("path", GOLDEN_FILES, ids=lambda path: path.stem)
def test_a_file_of_apache_is_read(path: Path) -> None:
    data = path.read_bytes()
    reader = reader_of(data)
    entries = pairs(reader.scan())
    assert len(entries) == reader.num_entries > 0
    assert entries == sorted(entries)
    assert reader.file_info[b"hfile.LASTKEY"][2:] == entries[-1][0]
    assert b"HoodieMetadataRecord" in reader.file_info[b"schema"]
    for entry in entries:
        assert pairs(reader.lookup(pa.array([entry[0]]))) == [entry]


def test_the_bloom_filter_of_a_base_file_is_a_meta_block() -> None:
    reader = reader_of((GOLDEN / "files.hfile").read_bytes())
    stored = reader.meta_block("bloomFilter")
    assert stored is not None and stored.startswith(b"//")
    assert reader.meta_block("another") is None


@pytest.mark.parametrize("length", [0, 127, 128, 255, 256, 70_000])
def test_lengths_in_the_index_are_hadoops(length: int) -> None:
    """Names of meta blocks of any length are read; the index stores lengths like Hadoop."""
    name = b"n" * length
    data = HFileBuilder(meta_blocks={name: b"content"}).build([(b"key", b"value")])
    assert reader_of(data).meta_block(name.decode()) == b"content"
    assert len(hadoop_vint(length)) == 1 if length < 128 else 2 + (length > 255) + (length > 65535)


@pytest.mark.refuses("HFiles with a compression other than gzip")
@pytest.mark.parametrize(
    ("ordinal", "name"), [(0, "LZO"), (3, "SNAPPY"), (4, "LZ4"), (6, "ZSTD"), (9, "number 9")]
)
def test_other_compressions_are_refused_by_name(ordinal: int, name: str) -> None:
    with pytest.raises(Unsupported, match=name):
        reader_of(HFileBuilder(ordinal).build([]))


@pytest.mark.parametrize(
    ("info", "expected"),
    [({b"MAX_MEMSTORE_TS_KEY": struct.pack(">q", 7)}, "MVCC")],
)
def test_versions_of_values_are_refused(info: dict[bytes, bytes], expected: str) -> None:
    with pytest.raises(Unsupported, match=expected):
        reader_of(HFileBuilder(info=info).build([]))


def test_another_version_is_refused() -> None:
    data = HFileBuilder().build([])
    with pytest.raises(Unsupported, match="version 2"):
        reader_of(data[:-1] + b"\x02")


def test_an_index_that_leads_back_is_corrupt() -> None:
    """A file whose index blocks name each other is refused instead of being read for ever."""
    builder = HFileBuilder(NONE, block_bytes=1, fanout=2, levels=3)
    data = builder.build([(b"%d" % number, b"") for number in range(8)])
    first_leaf = data.index(b"IDXLEAF2")
    second_leaf = data.index(b"IDXLEAF2", first_leaf + 1)
    leaf = data[first_leaf:second_leaf]
    twice = data.replace(data[second_leaf : second_leaf + len(leaf)], leaf)
    with pytest.raises(CorruptData, match="or later"):
        pairs(reader_of(twice).scan())


def test_a_file_that_ends_early_is_corrupt() -> None:
    data = HFileBuilder(NONE).build([(b"a", b"b")])
    for size in (0, 100, TRAILER_BYTES - 1, len(data) - 1):
        with pytest.raises((CorruptData, Unsupported)):
            pairs(reader_of(data[:size]).scan())
    with pytest.raises(CorruptData, match="bytes"):
        HFileReader(io.BytesIO(data), len(data) + 10, "some.hfile")


def _plain(path: Path) -> bytes:
    """Write the entries of a file again without compression, so that damage hits a structure."""
    reader = reader_of(path.read_bytes())
    builder = HFileBuilder(NONE, block_bytes=600, levels=3, info=reader.file_info)
    return builder.build(pairs(reader.scan()))


def _offsets(data: bytes) -> list[int]:
    """Return the offsets at which the file is not all zeros; most of a trailer is."""
    return [at for at in range(len(data) - 4) if data[at : at + 4] != bytes(4)]


FUZZED = [*(path.read_bytes() for path in GOLDEN_FILES), *map(_plain, GOLDEN_FILES)]
OFFSETS = {data: _offsets(data) for data in FUZZED}


@settings(deadline=None, max_examples=examples(300))
@given(st.sampled_from(range(len(FUZZED))), st.data())
def test_damaged_files_raise_nothing_else(file: int, data: st.DataObject) -> None:
    damaged = bytearray(FUZZED[file])
    offsets = st.sampled_from(OFFSETS[FUZZED[file]])
    for at, patch in data.draw(st.lists(st.tuples(offsets, PATCHES), min_size=1, max_size=4)):
        damaged[at : at + len(patch)] = patch
    damaged = damaged[data.draw(st.sampled_from([0, 0, 1, 40])) :]
    try:
        reader = reader_of(bytes(damaged))
        entries = pairs(reader.scan())
        assert sum(len(key) + len(value) for key, value in entries) <= 1032 * len(damaged)
        pairs(reader.lookup(pa.array([b"a", b"z", b"k0010"])))
        pairs(reader.lookup_prefixes([b"", b"k"]))
        reader.meta_block("bloomFilter")
    except (CorruptData, Unsupported):
        pass


@settings(deadline=None)
@given(st.binary(max_size=TRAILER_BYTES + 200))
def test_any_bytes_raise_nothing_else(data: bytes) -> None:
    for trailed in (
        data,
        data + b'TRABLK"$' + data[:300].ljust(TRAILER_BYTES - 11, b"\0") + b"\0\0\3",
    ):
        try:
            entries = pairs(reader_of(trailed).scan())
        except (CorruptData, Unsupported):
            continue
        assert sum(len(key) + len(value) for key, value in entries) <= 1032 * len(trailed)
