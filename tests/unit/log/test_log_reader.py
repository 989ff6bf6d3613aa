from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lakemark.errors import CorruptData, Unsupported
from lakemark.log.log_block import MAGIC, BlockType, HeaderKey, LogBlock, encode
from lakemark.log.log_reader import read_blocks
from tests.unit.log.blocks import (
    GOLDEN_FILES,
    WRITABLE_TYPES,
    encoded_blocks,
    headers,
    mutations,
    read_all,
)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(WRITABLE_TYPES), headers(), st.binary(max_size=60))),
    st.binary(max_size=len(MAGIC) - 1),
)
def test_what_was_written_is_read(
    written: list[tuple[BlockType, dict[HeaderKey, str], bytes]], tail: bytes
) -> None:
    """Every block is read as it was written; at the end, fewer bytes than a magic are ignored."""
    data = b"".join(encode(*block) for block in written)
    read = [(b.type, dict(b.header), b.content.read()) for b in read_all(data + tail)]
    assert read == written


@pytest.mark.parametrize("path", GOLDEN_FILES, ids=lambda path: path.name)
def test_apaches_blocks_are_written_as_apache_wrote_them(path: Path) -> None:
    data = path.read_bytes()
    blocks = read_all(data)
    assert b"".join(encode(b.type, b.header, b.content.read()) for b in blocks) == data


@settings(deadline=None)
@given(st.lists(encoded_blocks() | st.binary(max_size=30), max_size=6), st.data())
def test_torn_blocks_are_stepped_over_as_the_model_does(
    parts: list[bytes], data: st.DataObject
) -> None:
    """The reader finds the same blocks as the model among whole and torn blocks and garbage."""
    torn = [part[: data.draw(st.integers(0, len(part)))] for part in parts]
    log = b"".join(
        part if data.draw(st.booleans()) and part.startswith(MAGIC) else MAGIC + cut
        for part, cut in zip(parts, torn, strict=True)
    )
    expected = list(_model(log))
    found: list[tuple[int, bool]] = []
    try:
        for block in read_blocks(io.BytesIO(log), len(log), "some.log"):
            found.append((block.offset, block.type is BlockType.CORRUPT))
    except (CorruptData, Unsupported):
        assert found == expected[: len(found)]
    else:
        assert found == expected


def _model(log: bytes) -> list[tuple[int, bool]]:
    """Return where ``HoodieLogFileReader`` finds a block, and whether it treats it as corrupt."""
    blocks, at = [], 0
    while len(log) - at >= 6:
        start, at = at, at + 6
        length = int.from_bytes(log[at : at + 8], signed=True)
        end = at + 8 + length
        total = int.from_bytes(log[end - 8 : end], signed=True) if length >= 8 else -1
        is_whole = len(log) - at >= 8 and end <= len(log) and total - 6 == length
        if is_whole and (len(log) - end < 6 or log[end : end + 6] == MAGIC):
            blocks.append((start, False))
            at = end
        else:
            blocks.append((start, True))
            following = log.find(MAGIC, at)
            at = len(log) if following < 0 else following
    return blocks


@pytest.mark.parametrize("path", GOLDEN_FILES[:2], ids=lambda path: path.name)
def test_a_file_cut_anywhere_keeps_its_complete_blocks(path: Path) -> None:
    data = path.read_bytes()
    offsets = [block.offset for block in read_all(data)]
    ends = [*offsets[1:], len(data)]
    for size_bytes in range(len(data)):
        blocks = read_all(data[:size_bytes])
        whole = [block.offset for block in blocks if block.type is not BlockType.CORRUPT]
        assert whole == [
            start for start, end in zip(offsets, ends, strict=True) if end <= size_bytes
        ]


@pytest.mark.parametrize("path", GOLDEN_FILES, ids=lambda path: path.name)
@settings(deadline=None)
@given(st.data())
def test_a_damaged_file_is_read_or_refused(path: Path, data: st.DataObject) -> None:
    damaged = data.draw(mutations(path.read_bytes()))
    try:
        for block in read_all(damaged):
            block.content.read()
    except (CorruptData, Unsupported) as error:
        assert "some.log" in str(error)


@settings(deadline=None)
@given(st.binary(min_size=6, max_size=200))
@example(b"PAR1 is no log file")
def test_a_file_that_begins_otherwise_is_corrupt(data: bytes) -> None:
    if not data.startswith(MAGIC):
        with pytest.raises(CorruptData, match="at byte 0: expected a log block's magic"):
            read_all(data)


@pytest.mark.parametrize(
    ("offset", "value", "message"),
    [(14, 2, "format version 2"), (14, 0, "format version 0"), (18, 7, "of type 7"),
     (18, 2, "of type 2"), (18, -1, "of type -1"), (26, 9, "unknown header key 9")],
)  # fmt: skip
def test_unknown_versions_types_and_headers_are_refused(
    offset: int, value: int, message: str
) -> None:
    block = bytearray(encode(BlockType.DELETE, {HeaderKey.INSTANT_TIME: "1"}, b"deletes"))
    block[offset : offset + 4] = value.to_bytes(4, signed=True)
    with pytest.raises(Unsupported, match=message):
        read_all(bytes(block))


@pytest.mark.parametrize("gap_bytes", range((1 << 20) - 8, (1 << 20) + 2))
def test_the_next_block_is_found_across_the_edge_of_a_scanned_chunk(gap_bytes: int) -> None:
    block = encode(BlockType.DELETE, {}, b"deletes")
    log = MAGIC + b"\x7f" * gap_bytes + block
    torn, whole = read_all(log)
    assert (torn.type, torn.content.size_bytes) == (BlockType.CORRUPT, gap_bytes)
    assert (whole.offset, whole.content.read()) == (6 + gap_bytes, b"deletes")


class _CountingFile(io.BytesIO):
    """A file that counts the bytes read from it."""

    read_bytes = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.read_bytes += len(data)
        return data


def test_content_of_a_large_file_stays_there_until_it_is_asked_for() -> None:
    contents = [bytes([number]) * (1 << 20) for number in range(4)]
    log = b"".join(
        encode(BlockType.PARQUET_DATA, {HeaderKey.INSTANT_TIME: "1"}, c) for c in contents
    )
    file = _CountingFile(log)
    blocks = list(read_blocks(file, len(log), "some.log"))
    assert file.read_bytes < 100_000
    assert [block.content.read() for block in blocks] == contents


def test_a_range_is_a_file_of_its_own() -> None:
    block = read_all(encode(BlockType.PARQUET_DATA, {}, b"0123456789"))[0]
    file = block.content.open()
    assert (file.seek(-4, io.SEEK_END), file.read(3), file.tell()) == (6, b"678", 9)
    assert (file.read(), file.read()) == (b"9", b"")
    assert (file.seek(2), file.seek(1, io.SEEK_CUR), file.read(2)) == (2, 3, b"34")


def test_a_file_shorter_than_listed_is_corrupt() -> None:
    log = encode(BlockType.DELETE, {}, b"deletes")
    with pytest.raises(CorruptData, match="expected 200 bytes"):
        list(read_blocks(io.BytesIO(log), 200, "some.log"))


def test_a_block_without_instant_or_schema_names_what_is_missing() -> None:
    block: LogBlock = read_all(encode(BlockType.AVRO_DATA, {}, b""))[0]
    with pytest.raises(CorruptData, match="INSTANT_TIME"):
        _ = block.instant_time
    with pytest.raises(CorruptData, match="SCHEMA"):
        _ = block.avro_schema


@pytest.mark.parametrize("is_last", [False, True])
def test_block_with_another_length_at_its_end_is_torn(is_last: bool) -> None:
    block = encode(BlockType.DELETE, {HeaderKey.INSTANT_TIME: "1"}, b"content")
    total_length = len(block) - 8
    assert block[-8:] == total_length.to_bytes(8)
    torn = block[:-8] + (total_length - 1).to_bytes(8)
    found = read_all(torn if is_last else torn + block)
    assert [one.type for one in found] == [BlockType.CORRUPT, BlockType.DELETE][: 2 - is_last]


def test_a_block_is_torn_if_something_else_follows_it() -> None:
    header = {HeaderKey.INSTANT_TIME: "1"}
    block = encode(BlockType.DELETE, header, b"content")
    found = read_all(block + b"something else" + block)
    assert [one.type for one in found] == [BlockType.CORRUPT, BlockType.DELETE]
