"""The writer reproduces an HFile of Apache Hudi, and the reader reads all that it writes."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.codec.hfile import Entries, HFileReader, write_hfile
from lakemark.codec.hfile.file_info import CREATED_MS
from lakemark.codec.hfile.trailer import Compression

ARCHIVES = Path(__file__).parents[2] / "golden"
#: Tables of which the metadata table was compacted, of each layout of the timeline.
ARCHIVED = ("v6_mor_recordindex", "v9_cow_column_stats")

KEYS = st.binary(min_size=1, max_size=6) | st.sampled_from([b"a" * 125, b"a" * 126, b"b" * 4000])
NAMED = st.dictionaries(st.binary(min_size=1, max_size=9), st.binary(max_size=300), max_size=4)


def reader_of(data: bytes) -> HFileReader:
    return HFileReader(io.BytesIO(data), len(data), "some.hfile")


def entries_of(reader: HFileReader) -> Entries:
    nothing = pa.array([], pa.binary())
    blocks = list(reader.scan())
    return Entries(
        pa.concat_arrays([nothing, *(block.keys for block in blocks)]),
        pa.concat_arrays([nothing, *(block.values for block in blocks)]),
    )


def given_info(reader: HFileReader) -> dict[bytes, bytes]:
    """Return the file info that the caller of the writer passed."""
    return {k: v for k, v in reader.file_info.items() if not k.startswith(b"hfile.")}


def apaches_files() -> Iterator[tuple[str, bytes]]:
    for path in (Path(__file__).parent / "golden").glob("*.hfile"):
        yield path.name, path.read_bytes()
    for name in ARCHIVED:
        with tarfile.open(ARCHIVES / f"{name}.tar.gz") as archive:
            for member in archive:
                if member.name.endswith(".hfile"):
                    stream = archive.extractfile(member)
                    assert stream is not None
                    yield member.name, stream.read()


def test_apaches_entries_become_apaches_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakemark.codec.hfile.block._GZIP_LEVEL", 6)  # Apache Hudi's
    count = 0
    for name, data in apaches_files():
        reader = reader_of(data)
        bloom = reader.meta_block("bloomFilter")
        written = write_hfile(
            entries_of(reader),
            given_info(reader),
            created_ms=int.from_bytes(reader.file_info[CREATED_MS]),
            meta_blocks={} if bloom is None else {b"bloomFilter": bloom},
        )
        assert written == data, name
        count += 1
    assert count >= 10


@st.composite
def files(draw: st.DrawFn) -> tuple[Entries, dict[bytes, bytes], dict[bytes, bytes], bytes]:
    """Draw entries, file info, meta blocks, and a file that contains them."""
    keys = sorted(draw(st.sets(KEYS, max_size=40)))
    values = draw(st.lists(st.binary(max_size=90), min_size=len(keys), max_size=len(keys)))
    entries = Entries(pa.array(keys, pa.binary()), pa.array(values, pa.binary()))
    info, meta = draw(NAMED), draw(NAMED)
    data = write_hfile(
        entries,
        info,
        created_ms=draw(st.integers(0, 2**62)),
        meta_blocks=meta,
        compression=draw(st.sampled_from([Compression.GZ, Compression.NONE])),
        block_bytes=draw(st.sampled_from([1, 90, 5000, 1 << 16])),
    )
    return entries, info, meta, data


def test_of_nothing_there_is_a_file() -> None:
    empty = Entries(pa.array([], pa.binary()), pa.array([], pa.binary()))
    reader = reader_of(write_hfile(empty, created_ms=1))
    assert reader.num_entries == 0
    assert list(reader.scan()) == []


@settings(deadline=None)
@given(files())
def test_what_was_written_is_read(
    file: tuple[Entries, Mapping[bytes, bytes], Mapping[bytes, bytes], bytes],
) -> None:
    entries, info, meta, data = file
    reader = reader_of(data)
    assert entries_of(reader) == entries
    assert reader.num_entries == len(entries.keys)
    assert info.items() <= reader.file_info.items()
    for name, content in meta.items():
        if name.isascii():
            assert reader.meta_block(name.decode()) == content


@settings(deadline=None)
@given(files(), st.lists(KEYS, max_size=9), st.data())
def test_a_lookup_finds_what_was_written(
    file: tuple[Entries, Mapping[bytes, bytes], Mapping[bytes, bytes], bytes],
    others: list[bytes],
    data: st.DataObject,
) -> None:
    entries, _, _, file_bytes = file
    keys = entries.keys.to_pylist()
    wanted = {*others, *data.draw(st.sets(st.sampled_from(keys or [b"none"]), max_size=9))}
    blocks = reader_of(file_bytes).lookup(pa.array(wanted, pa.binary()))
    found = [key for block in blocks for key in block.keys.to_pylist()]
    assert found == [key for key in keys if key in wanted]


@given(st.lists(st.integers(0, 70), min_size=1, max_size=60), st.sampled_from([40, 100, 200]))
def test_a_block_is_full_before_the_next_begins(lengths: list[int], block_bytes: int) -> None:
    keys = pa.array([n.to_bytes(2) for n in range(len(lengths))], pa.binary())
    values = pa.array([bytes(length) for length in lengths], pa.binary())
    data = write_hfile(Entries(keys, values), created_ms=1, block_bytes=block_bytes)
    reader = reader_of(data)
    assert reader.data_blocks is not None
    blocks = [
        [2 + len(value) + 21 for part in stored for value in part.values.to_pylist()]
        for stored in (reader.entries_of([location]) for location in reader.data_blocks.locations)
    ]
    for block in blocks:
        assert sum(block) <= block_bytes or len(block) == 1
    for block, following in pairwise(blocks):
        assert sum(block) + following[0] > block_bytes


@pytest.mark.parametrize("keys", [[b"b", b"a"], [b"a", b"a"], [b"\xff", b"\x00"], [b"a", None]])
def test_keys_that_do_not_ascend_are_no_file(keys: list[bytes | None]) -> None:
    entries = Entries(pa.array(keys, pa.binary()), pa.array([b""] * len(keys), pa.binary()))
    with pytest.raises(AssertionError):
        write_hfile(entries, created_ms=1)
