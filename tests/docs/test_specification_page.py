"""The ids of block and header types in ``docs/specification.md`` are those of log files."""

from __future__ import annotations

import re
from enum import IntEnum
from pathlib import Path

import pytest

from lakemark.log.log_block import BlockType, HeaderKey

_PAGE = (Path(__file__).parents[2] / "docs" / "specification.md").read_text()


@pytest.mark.parametrize("ids", [BlockType, HeaderKey])
def test_the_page_lists_every_id_of_log_blocks(ids: type[IntEnum]) -> None:
    listed = dict(re.findall(r"`([A-Z_]+)` = (\d+)", _PAGE))
    assert {one.name: str(one.value) for one in ids}.items() <= listed.items()
