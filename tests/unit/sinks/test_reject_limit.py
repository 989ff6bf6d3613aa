"""The share of bad records that ends a run, in one batch or in the batches of a slow topic."""

from __future__ import annotations

from uuid import uuid4

import pytest

from lakemark.storage import StorageLocation
from sinks.reject_limit import RejectLimit, TooManyRejects
from streamer.config.run import DeadLettersConfig
from tests.json_stream import JsonStream

DEFAULT = RejectLimit(DeadLettersConfig().max_share, DeadLettersConfig().tolerated)

BROKEN = b"no JSON"


def good(count: int) -> list[bytes]:
    return [b'{"id": "a", "ts": %d}' % number for number in range(count)]


def slow_stream(limit: RejectLimit = DEFAULT, *, ignores_tombstones: bool = False) -> JsonStream:
    location = StorageLocation(f"memory://{uuid4().hex}/orders")
    return JsonStream(
        location, limit=limit, ignores_tombstones=ignores_tombstones, metadata_table=False
    )


def test_a_wholly_broken_topic_ends_the_run_however_small_its_batches() -> None:
    stream = slow_stream()
    for _ in range(3):
        assert stream.write([BROKEN] * 3).rejected == 3
    with pytest.raises(TooManyRejects, match=r"10 of 10 .*max_share allows; the first: orders 0:9"):
        stream.write([BROKEN])
    assert sorted(stream.reasons()) == list(range(9))
    checkpoint = stream.sink.checkpoint()
    assert checkpoint is not None
    assert checkpoint.offsets_by_partition == {0: 9}


def test_few_bad_records_among_the_last_ones_pass_and_a_bad_batch_does_not() -> None:
    stream = slow_stream()
    stream.write(good(400))
    for _ in range(2):
        stream.write([BROKEN] * 9)  # 18 of 418 are below the share
    with pytest.raises(TooManyRejects, match="10 of 10 "):
        stream.write([BROKEN] * 10)
    stream.write([BROKEN] * 3)  # 21 of 421
    with pytest.raises(TooManyRejects, match="22 of 422 "):
        stream.write([BROKEN])


def test_only_the_last_records_count() -> None:
    stream = slow_stream(RejectLimit(0.0, 9))
    stream.write([BROKEN] * 9)
    stream.write(good(9_990))
    with pytest.raises(TooManyRejects, match="10 of 10000 "):
        stream.write([BROKEN])
    stream.write(good(10))
    stream.write([BROKEN] * 9)
    assert len(stream.reasons()) == 18


def test_ignored_tombstones_do_not_dilute_the_share_of_recent_rejects() -> None:
    stream = slow_stream(ignores_tombstones=True)
    for _ in range(3):
        result = stream.write([BROKEN] * 3 + [None] * 1_000)
        assert (result.rejected, result.ignored, result.records) == (3, 1_000, 1_003)
    with pytest.raises(TooManyRejects, match="10 of 10 "):
        stream.write([BROKEN])


@pytest.mark.parametrize(
    ("rejected", "records", "exceeds"),
    [(1, 1, False), (9, 9, False), (10, 10, True), (10, 199, True), (10, 200, False)],
)
def test_the_defaults_tolerate_nine_or_a_twentieth(
    rejected: int, records: int, exceeds: bool
) -> None:
    assert DEFAULT.is_exceeded(rejected, records) is exceeds
