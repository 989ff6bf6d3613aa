"""An HFile with some entries changed has the same entries as one that is written again."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.codec.hfile import Entries, HFileReader, write_hfile
from lakemark.codec.hfile.block_index import BlockLocation
from lakemark.codec.hfile.file_info import LAST_KEY, MEAN_KEY_BYTES
from lakemark.codec.hfile.hfile_splice import splice_hfile
from lakemark.codec.hfile.trailer import Compression
from lakemark.errors import CorruptData
from tests.depth import examples
from tests.unit.codec.test_hfile_writer import entries_of, reader_of

_BLOCK_BYTES = 200
#: Keys that sort alike in Java.
KEYS = st.lists(st.integers(0, 0xED), min_size=1, max_size=4).map(bytes)


def entries(records: Mapping[bytes, bytes]) -> Entries:
    keys = sorted(records)
    return Entries(
        pa.array(keys, pa.binary()), pa.array([records[key] for key in keys], pa.binary())
    )


def hfile(records: Mapping[bytes, bytes], compression: Compression = Compression.GZ) -> bytes:
    return write_hfile(
        entries(records), created_ms=1, compression=compression, block_bytes=_BLOCK_BYTES
    )


def splice(
    base: bytes, written: Mapping[bytes, bytes], deleted: list[bytes]
) -> tuple[HFileReader, list[bytes]] | None:
    found = splice_hfile(
        reader_of(base), entries(written), pa.array(sorted(deleted), pa.binary()), "f", _BLOCK_BYTES
    )
    if found is None:
        return None
    reader = reader_of(found.parts.finish({}, 1, {}))
    assert reader.num_entries == found.count
    return reader, found.added.to_pylist()


@settings(deadline=None, max_examples=examples(100))
@given(
    st.dictionaries(KEYS, st.binary(max_size=60), max_size=60),
    st.dictionaries(KEYS, st.binary(max_size=60), max_size=20),
    st.sets(KEYS, max_size=10),
    st.sampled_from([Compression.GZ, Compression.NONE]),
    st.booleans(),
)
def test_spliced_file_has_the_entries_of_a_file_that_is_written_again(
    base: dict[bytes, bytes],
    new: dict[bytes, bytes],
    absent: set[bytes],
    compression: Compression,
    deletes_last: bool,
) -> None:
    # Half of the changes concern entries that exist.
    known = sorted(base)
    written = new | dict.fromkeys(known[::7], b"changed")
    deleted = (absent | set(known[3::11] + known[-1:] * deletes_last)) - written.keys()
    expected = {key: value for key, value in base.items() if key not in deleted} | written
    found = splice(hfile(base, compression), written, sorted(deleted))
    last = max(base, default=b"")
    if found is None:
        assert not base or last in deleted
        return
    reader, added = found
    assert entries_of(reader) == entries(expected)
    assert added == sorted(written.keys() - base.keys())
    assert reader.num_entries == len(expected)
    assert reader.file_info[LAST_KEY][2:] == max(expected)
    whole = reader_of(hfile(expected))
    means = [int.from_bytes(one.file_info[MEAN_KEY_BYTES]) for one in (reader, whole)]
    assert abs(means[0] - means[1]) <= max(means) + 1
    for key in (*expected, *deleted):
        blocks = list(reader.lookup(pa.array([key], pa.binary())))
        assert [value for block in blocks for value in block.values.to_pylist()] == (
            [expected[key]] if key in expected else []
        )


@pytest.mark.parametrize("first", ["\ue000", "\uffee", "\U0001f600"])
def test_file_that_java_may_have_sorted_otherwise_is_not_spliced(first: str) -> None:
    """Java sorts U+1F600 before U+FFEE, so the block of a key is not certain."""
    base = {b"a%d" % number: bytes(50) for number in range(8)} | {first.encode(): bytes(50)}
    assert splice(hfile(base), {b"a5": b"new"}, []) is None


def test_key_that_java_sorts_otherwise_is_added_between_other_keys() -> None:
    base = {b"%d" % number: bytes(150) for number in range(9)}
    added = {f"3{end}".encode(): b"new" for end in ("\uffee", "\U0001f600")}
    found = splice(hfile(base), added, [])
    assert found is not None
    assert entries_of(found[0]) == entries(base | added)


def test_only_blocks_with_changes_are_decompressed(monkeypatch: pytest.MonkeyPatch) -> None:
    base = {b"%05d" % number: bytes(50) for number in range(1000)}
    file = hfile(base)
    read: list[BlockLocation] = []
    entries_of_blocks = HFileReader.entries_of

    def note(reader: HFileReader, locations: Iterable[BlockLocation]) -> Iterator[Entries]:
        read.extend(locations)
        return entries_of_blocks(reader, locations)

    monkeypatch.setattr(HFileReader, "entries_of", note)
    changed = {b"00500": b"x", b"00900+": b"y"}
    found = splice(file, changed, [b"00100"])
    assert found is not None and entries_of(found[0]) == entries(
        {key: value for key, value in (base | changed).items() if key != b"00100"}
    )
    assert len(read) == 3
    index = found[0].data_blocks
    assert index is not None and len(index.locations) > 300


def test_blocks_that_become_too_large_are_divided_evenly() -> None:
    base = {b"%05d" % number: bytes(50) for number in range(100)}
    more = {b"00010+%05d" % number: bytes(50) for number in range(50)}
    found = splice_hfile(
        reader_of(hfile(base)), entries(more), pa.array([], pa.binary()), "f", _BLOCK_BYTES
    )
    assert found is not None and not found.is_fragmented
    reader = reader_of(found.parts.finish({}, 1, {}))
    assert reader.data_blocks is not None
    blocks = reader.data_blocks.locations
    sizes = [sum(len(part.keys) for part in reader.entries_of([one])) for one in blocks]
    assert sum(sizes) == 150 and max(sizes) <= 3 and sizes.count(1) <= 2


def test_file_of_many_small_blocks_is_reported() -> None:
    base = {b"%05d" % number: b"" for number in range(3000)}
    file = write_hfile(entries(base), created_ms=1, block_bytes=60)
    found = splice_hfile(
        reader_of(file), entries({b"0": b""}), pa.array([], pa.binary()), "f", _BLOCK_BYTES
    )
    assert found is not None and found.is_fragmented


def test_damaged_block_that_would_be_copied_is_refused() -> None:
    base = {b"%05d" % number: bytes(50) for number in range(100)}
    file = bytearray(hfile(base))
    index = reader_of(bytes(file)).data_blocks
    assert index is not None
    file[index.locations[7].offset] ^= 1
    with pytest.raises(CorruptData, match="HFile block"):
        splice_hfile(
            HFileReader(io.BytesIO(bytes(file)), len(file), "f"),
            entries({b"0": b""}),
            pa.array([], pa.binary()),
            "f",
        )
