"""The effective blocks are those of a model of ``BaseHoodieLogRecordReader.scanInternal``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.errors import Unsupported
from lakemark.log.effective_blocks import effective_blocks
from lakemark.log.log_block import MAGIC, BlockType, HeaderKey, LogBlock, encode
from tests.depth import examples
from tests.unit.log.blocks import read_all

INSTANTS = ["1", "2", "3", "4"]
HIDDEN = "4"


@dataclass(frozen=True)
class Block:
    instant: str
    type: BlockType = BlockType.AVRO_DATA
    rewrites: tuple[str, ...] = ()
    takes_back: str = ""

    def encoded(self, number: int) -> bytes:
        """Encode the block; its content is its number."""
        if self.type is BlockType.CORRUPT:
            return MAGIC + b"torn"
        header = {HeaderKey.INSTANT_TIME: self.instant}
        if self.rewrites:
            header[HeaderKey.COMPACTED_BLOCK_TIMES] = ",".join(self.rewrites)
        if self.type is BlockType.COMMAND:
            header |= {HeaderKey.TARGET_INSTANT_TIME: self.takes_back}
            header |= {HeaderKey.COMMAND_BLOCK_TYPE: "0"}
        return encode(self.type, header, b"%d" % number)


def as_apache_scans(blocks: Sequence[Block]) -> list[int]:
    blocks_of: dict[str, list[int]] = {}
    ordered: list[str] = []
    for number, block in enumerate(blocks):
        if block.type is BlockType.COMMAND:
            if block.takes_back in ordered:
                ordered.remove(block.takes_back)
            blocks_of.pop(block.takes_back, None)
        elif block.type not in (BlockType.CORRUPT, BlockType.CDC_DATA) and block.instant != HIDDEN:
            if block.instant not in blocks_of:
                ordered.append(block.instant)
            blocks_of.setdefault(block.instant, []).append(number)
    last_first: list[int] = []
    included: set[str] = set()
    compacted_into: dict[str, str] = {}
    for instant in ordered[::-1]:
        rewrites = blocks[blocks_of[instant][0]].rewrites
        if rewrites:
            for original in rewrites:
                compacted_into[original] = compacted_into.get(instant, instant)
            continue
        chosen = compacted_into.get(instant, instant)
        if chosen not in included:
            included.add(chosen)
            last_first += blocks_of[chosen][::-1]
    return last_first[::-1]


_TYPES = [BlockType.AVRO_DATA, BlockType.DELETE, BlockType.CDC_DATA, BlockType.CORRUPT]
_BLOCKS = st.one_of(
    st.builds(Block, st.sampled_from(INSTANTS), st.sampled_from(_TYPES)),
    st.builds(
        Block,
        st.sampled_from(INSTANTS),
        st.just(BlockType.COMMAND),
        takes_back=st.sampled_from(INSTANTS),
    ),
)


@st.composite
def _logs(draw: st.DrawFn) -> list[Block]:
    """Draw blocks, and log compactions that rewrite blocks of earlier instants."""
    blocks = draw(st.lists(_BLOCKS, max_size=10))
    for instant in draw(st.lists(st.sampled_from(["5", "6"]), max_size=2, unique=True)):
        known = sorted({block.instant for block in blocks})
        if known:
            rewrites = draw(st.lists(st.sampled_from(known), min_size=1, unique=True))
            blocks.append(Block(instant, rewrites=tuple(rewrites)))
            blocks += draw(st.lists(_BLOCKS, max_size=3))
    return blocks


@settings(deadline=None, max_examples=examples(300))
@given(_logs())
def test_effective_blocks_are_those_of_apache(blocks: list[Block]) -> None:
    log = b"".join(block.encoded(number) for number, block in enumerate(blocks))
    effective = effective_blocks(read_all(log), lambda instant: instant != HIDDEN)
    assert [_number_of(block) for block in effective] == as_apache_scans(blocks)


def test_a_block_written_again_after_its_rollback_counts() -> None:
    """A block that was rolled back and written again counts.

    The metadata table of version 6 retries a commit under the same instant.
    """
    blocks = [Block("1"), Block("9", BlockType.COMMAND, takes_back="1"), Block("1")]
    assert as_apache_scans(blocks) == [2]
    log = b"".join(block.encoded(number) for number, block in enumerate(blocks))
    assert [_number_of(block) for block in effective_blocks(read_all(log), bool)] == [2]


def test_an_unknown_command_is_refused() -> None:
    header = {HeaderKey.INSTANT_TIME: "1", HeaderKey.COMMAND_BLOCK_TYPE: "1"}
    with pytest.raises(Unsupported, match="command 1"):
        effective_blocks(read_all(encode(BlockType.COMMAND, header, b"")), bool)


def _number_of(block: LogBlock) -> int:
    return int(block.content.read())
