from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoints.checkpoint import KafkaCheckpoint
from streamer.sources.errors import DamagedOffsetLog
from streamer.sources.offset_log import parse, planned_end

WRITTEN = 'v1\n{"batchWatermarkMs":0,"conf":{}}\n{"orders":{"1":7,"0":28}}'


def test_the_end_of_a_batch_is_what_spark_planned(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "3").write_text(WRITTEN)
    assert planned_end(tmp_path, 3) == KafkaCheckpoint("orders", {0: 28, 1: 7})


def test_a_batch_that_was_not_planned(tmp_path: Path) -> None:
    with pytest.raises(DamagedOffsetLog, match="expected the offsets of a batch"):
        planned_end(tmp_path, 0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "v2" + WRITTEN[2:],
        WRITTEN + '\n{"other":{"0":1}}',
        "v1\n{}\n-",
        "v1\n{}\n[]",
        "v1\n{}\n{}",
        'v1\n{}\n{"a":{"0":1},"b":{"0":1}}',
        'v1\n{}\n{"a":5}',
        'v1\n{}\n{"a":{"x":1}}',
        'v1\n{}\n{"a":{"0":"x"}}',
        'v1\n{}\n{"a":{"0":-1}}',
        'v1\n{}\n{"a b":{"0":1}}',
        "v1\n{}\n" + "[" * 100_000,
    ],
)
def test_another_format_is_refused_by_name(text: str) -> None:
    with pytest.raises(DamagedOffsetLog, match="here: expected"):
        parse(text, "here")


@given(st.text() | st.integers(0, len(WRITTEN)).map(lambda end: WRITTEN[:end]))
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        assert parse(text, "here").offsets
    except DamagedOffsetLog:
        assert text != WRITTEN
