"""A range reader gives the same results as a file in memory, in few requests."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark.storage import range_reader
from lakemark.storage.range_reader import RangeReader

DATA = bytes(range(256)) * 4

operations = st.lists(
    st.one_of(
        st.tuples(st.just("seek"), st.integers(-2000, 2000), st.sampled_from([0, 1, 2])),
        st.tuples(st.just("read"), st.integers(-1, 1200), st.none()),
        st.tuples(st.just("readinto"), st.integers(0, 1200), st.none()),
    )
)


@given(operations=operations, size_bytes=st.integers(0, len(DATA)), ahead=st.integers(1, 300))
def test_it_reads_what_a_file_reads(
    operations: list[tuple[str, int, int | None]], size_bytes: int, ahead: int
) -> None:
    data = DATA[:size_bytes]
    requested: list[tuple[int, int]] = []

    def fetch(start: int, length_bytes: int) -> bytes:
        requested.append((start, length_bytes))
        assert 0 < length_bytes
        assert start + length_bytes <= size_bytes
        return data[start : start + length_bytes]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(range_reader, "_READ_AHEAD_BYTES", ahead)
        file, model = RangeReader(fetch, size_bytes), io.BytesIO(data)
        for operation, number, whence in operations:
            if whence is not None:
                assert seek(file, number, whence) == seek(model, number, whence)
            elif operation == "read":
                assert file.read(number) == model.read(number)
            else:
                ours, theirs = bytearray(number), bytearray(number)
                assert file.readinto(ours) == model.readinto(theirs)
                assert ours == theirs
            assert file.tell() == model.tell()
    assert len(requested) <= len(operations)


def seek(file: io.RawIOBase | io.BytesIO, offset: int, whence: int) -> int | None:
    """Seek; return the new position, or None if it is before the start of the file."""
    base = {io.SEEK_SET: 0, io.SEEK_CUR: file.tell(), io.SEEK_END: len(DATA)}[whence]
    if isinstance(file, io.BytesIO):
        base = {0: 0, 1: file.tell(), 2: len(file.getvalue())}[whence]
        return file.seek(offset, whence) if base + offset >= 0 else None
    try:
        return file.seek(offset, whence)
    except ValueError:
        return None


def test_neighbours_come_with_one_request() -> None:
    data = bytes(1 << 20)
    starts: list[int] = []

    def fetch(start: int, length_bytes: int) -> bytes:
        starts.append(start)
        return data[start : start + length_bytes]

    file = RangeReader(fetch, len(data))
    for offset in (500_000, 500_008, 510_000, 600_000):
        file.seek(offset)
        assert len(file.read(100)) == 100
    file.seek(0)
    assert file.readall() == data
    assert starts == [500_000, 0]
