"""The entries of several data blocks are found together, whatever bytes they contain."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lakemark.codec.hfile import HFileReader
from lakemark.codec.hfile.block import Block
from lakemark.codec.hfile.entry_starts import AFTER_KEY
from lakemark.codec.hfile.hfile_data_block import parse_entries
from lakemark.errors import CorruptData
from tests.unit.codec.hfiles import NONE, Entry, HFileBuilder

#: Texts that look like the bytes between a key and its value, and parts of them.
LOOKALIKES = [AFTER_KEY, AFTER_KEY[1:], AFTER_KEY[:-1], AFTER_KEY * 2, b"\x7f", b"\x7f\xff" * 5]
TEXTS = st.binary(max_size=40) | st.sampled_from(LOOKALIKES)
JOINED = st.lists(TEXTS, max_size=4).map(b"".join)
#: The end of an entry and the lengths of another one, so that a value looks like an entry.
FALSE_ENTRY = b"\x00" + b"\x00\x00\x00\x0d\x00\x00\x00\x01\x00\x01k" + AFTER_KEY + b"v"


def stored(key: bytes, value: bytes) -> bytes:
    lengths = (len(key) + 12).to_bytes(4) + len(value).to_bytes(4) + len(key).to_bytes(2)
    return lengths + key + AFTER_KEY + value + b"\0"


def block(content: bytes, offset: int = 0) -> Block:
    return Block(content, offset, len(content), "some.hfile")


@settings(deadline=None)
@given(st.lists(st.lists(st.tuples(JOINED, JOINED), max_size=6), min_size=1, max_size=4))
@example([[(b"k", FALSE_ENTRY), (b"key", b"")], [], [(b"", FALSE_ENTRY)]])
@example([[(b"%0*d" % (length, 1), b"v") for length in range(1, 50)]])
def test_entries_of_several_blocks_are_those_of_each_block(parts: list[list[Entry]]) -> None:
    blocks = tuple(block(b"".join(stored(*one) for one in part)) for part in parts)
    found = parse_entries(blocks)
    keys = found.keys()
    expected = [one for part in parts for one in part]
    entries = found.take(keys)
    assert list(zip(entries.keys.to_pylist(), entries.values.to_pylist(), strict=True)) == expected
    chosen = np.arange(len(keys)) % 3 == 1
    some = found.take(keys, chosen)
    assert list(zip(some.keys.to_pylist(), some.values.to_pylist(), strict=True)) == expected[1::3]


def damaged() -> Iterator[tuple[str, bytes]]:
    whole = stored(b"key", b"value") + stored(b"other", b"")
    yield "ends early", whole[:-1]
    yield "begins late", whole[1:]
    yield "length of the value", whole[:7] + b"\x06" + whole[8:]
    yield "negative length", whole[:4] + b"\xff" + whole[5:]
    yield "length of the key", whole[:9] + b"\x04" + whole[10:]
    yield "total length", whole[:3] + b"\x10" + whole[4:]
    yield "version", whole[:-1] + b"\x01"
    yield "kind", whole.replace(AFTER_KEY, AFTER_KEY[:-1] + b"\x08")


@pytest.mark.parametrize("content", [pytest.param(c, id=name) for name, c in damaged()])
@pytest.mark.parametrize("after", [0, 3])
def test_error_names_the_damaged_block(content: bytes, after: int) -> None:
    good = [block(stored(b"a%d" % number, b"v"), 100 * number) for number in range(4)]
    blocks = (*good[:2], block(content, 777), *good[:after])
    with pytest.raises(CorruptData) as raised:
        parse_entries(blocks)
    assert raised.value.offset == 777


def test_entry_that_continues_in_the_next_block_is_damage() -> None:
    whole = stored(b"key", b"value") + stored(b"other", b"value")
    for cut in range(1, len(whole)):
        blocks = (block(whole[:cut]), block(whole[cut:], cut))
        if cut == len(stored(b"key", b"value")):
            assert parse_entries(blocks).keys().to_pylist() == [b"key", b"other"]
            continue
        with pytest.raises(CorruptData):
            parse_entries(blocks)


def test_scan_of_many_blocks_returns_all_entries_once() -> None:
    """The file has more blocks than are parsed together."""
    entries = [(b"key-%06d" % number, b"%d" % number * 30) for number in range(15_000)]
    data = HFileBuilder(NONE, block_bytes=10_000).build(entries)
    reader = HFileReader(io.BytesIO(data), len(data), "some.hfile")
    parts = list(reader.scan())
    assert len(parts) > 1
    keys = [key for part in parts for key in part.keys.to_pylist()]
    values = [value for part in parts for value in part.values.to_pylist()]
    assert list(zip(keys, values, strict=True)) == entries
