"""Checkpoints of any content are printed, parsed, compared and added correctly."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoints import commit_keys
from checkpoints.checkpoint import KafkaCheckpoint

_offsets = st.dictionaries(
    st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), min_size=1, max_size=8
)
_counts = st.dictionaries(st.integers(0, 9), st.integers(0, 1_000), max_size=8)
checkpoints = st.builds(
    KafkaCheckpoint, st.from_regex(r"[A-Za-z0-9._-]{1,249}", fullmatch=True), _offsets
)


@given(checkpoints)
def test_text_metadata_and_pickle_round_trip(checkpoint: KafkaCheckpoint) -> None:
    assert KafkaCheckpoint.parse(str(checkpoint)) == checkpoint
    assert commit_keys.decode(commit_keys.encode(checkpoint)) == checkpoint
    restored = pickle.loads(pickle.dumps(checkpoint))
    assert restored == checkpoint
    assert hash(restored) == hash(checkpoint)


@given(st.text() | st.from_regex(r"t(,-?[0-9]{1,3}:[0-9]{1,3}){0,3},?", fullmatch=True))
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        checkpoint = KafkaCheckpoint.parse(text)
    except ValueError as error:
        assert text == "" or "found" in str(error) or "not the name" in str(error)
    else:
        assert KafkaCheckpoint.parse(str(checkpoint)) == checkpoint


@given(_counts, _counts, _counts)
def test_advanced_checkpoints_add_up_and_are_never_earlier(
    start: dict[int, int], first: dict[int, int], second: dict[int, int]
) -> None:
    before = KafkaCheckpoint("orders", start)
    between = before.advanced_by(first)
    after = between.advanced_by(second)
    assert before <= between <= after
    total = {p: first.get(p, 0) + second.get(p, 0) for p in first.keys() | second.keys()}
    assert before.advanced_by(total) == after
    grown = {p: count for p, count in after.distance_from(between).items() if count}
    assert grown == {p: count for p, count in second.items() if count}


@given(checkpoints, checkpoints)
def test_different_topics_are_never_ordered(a: KafkaCheckpoint, b: KafkaCheckpoint) -> None:
    if a.topic != b.topic:
        assert not a <= b
        assert not b <= a
        with pytest.raises(ValueError, match="is not before"):
            b.distance_from(a)
