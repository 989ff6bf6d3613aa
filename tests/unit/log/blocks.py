"""Log files for tests: those of Apache Hudi, and generated ones."""

from __future__ import annotations

import io
from pathlib import Path

from hypothesis import strategies as st

from lakemark.log.log_block import BlockType, Header, HeaderKey, LogBlock, encode
from lakemark.log.log_reader import read_blocks

GOLDEN = Path(__file__).parent / "golden"
GOLDEN_FILES = sorted(GOLDEN.glob("*.log"))

WRITABLE_TYPES = [t for t in BlockType if t is not BlockType.CORRUPT]


def read_all(data: bytes, path: str = "some.log") -> list[LogBlock]:
    """Read every block of a log file."""
    return list(read_blocks(io.BytesIO(data), len(data), path))


def only_block(data: bytes) -> LogBlock:
    """Read the only block of a log file."""
    (block,) = read_all(data)
    return block


def block_of(block_type: BlockType, content: bytes, header: Header | None = None) -> LogBlock:
    """Write a block with this content, and read it."""
    return only_block(encode(block_type, header or {}, content))


def headers() -> st.SearchStrategy[dict[HeaderKey, str]]:
    """Draw a header."""
    return st.dictionaries(st.sampled_from(HeaderKey), st.text(max_size=40), max_size=4)


def encoded_blocks() -> st.SearchStrategy[bytes]:
    """Draw the bytes of a whole block."""
    return st.builds(encode, st.sampled_from(WRITABLE_TYPES), headers(), st.binary(max_size=60))


def mutations(data: bytes) -> st.SearchStrategy[bytes]:
    """Draw variants of ``data`` with a few bytes overwritten, inserted or removed."""
    offset = st.integers(0, len(data))
    edit = st.tuples(offset, st.integers(0, 9), st.binary(max_size=9))
    return st.lists(edit, min_size=1, max_size=4).map(lambda edits: _edited(data, edits))


def _edited(data: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    for offset, removed, added in edits:
        data = data[:offset] + added + data[offset + removed :]
    return data
