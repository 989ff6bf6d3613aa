"""Crashes, days and replays in any order: each rejected record has one dead letter and one row."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.errors import StorageUnavailable
from lakemark.operations.open_table import open_table
from tests.depth import examples
from tests.json_stream import JsonStream
from tests.rejection_days import Days, letters_at
from tests.unit.sinks.test_letters_by_day import bad, fail_once, inserting
from tests.unit.sinks.test_replay import STRICT, somewhere

#: Long before the commits of the test, as if each restart came years after the rejections.
LONG_AGO = datetime(2020, 3, 1, 23, 59, 30, tzinfo=UTC)

#: A batch of so many records: the process dies before the commit of the rows, or not.
_batches = st.tuples(st.sampled_from(["write", "die"]), st.integers(1, 4))
_acts = st.lists(_batches | st.sampled_from([("day", 1), ("restart", 0), ("replay", 0)]))


@settings(max_examples=examples(25), deadline=None)
@given(_acts)
def test_each_rejected_record_has_one_letter_and_is_replayed_once(
    acts: list[tuple[str, int]],
) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        days, location = Days(monkeypatch, LONG_AGO), somewhere()
        stream = inserting(location, policy=STRICT)
        days_of: dict[int, str] = {}
        for act, count in acts:
            if act == "day":
                days.advance()
            elif act == "restart":
                stream = inserting(location, policy=STRICT)
            elif act == "replay":
                inserting(location).replay(overwrites_newer=True).run(None)
                stream = inserting(location, policy=STRICT)
            else:
                first = stream.offset
                for offset in range(first, first + count):
                    days_of.setdefault(offset, f"{days.now:%Y-%m-%d}")
                records = bad(*(f"r{offset}" for offset in range(first, first + count)))
                if act == "die":
                    fail_once(monkeypatch, stream, StorageUnavailable("dies"))
                    with pytest.raises(StorageUnavailable):
                        stream.write(records)
                    stream = inserting(location, policy=STRICT)
                else:
                    stream.write(records)
        letters = letters_at(stream.rejects.table.location) if days_of else []
        assert [(row["offset"], row["rejected_on"]) for row in letters] == sorted(days_of.items())
        _check_replayed(stream)


def _check_replayed(stream: JsonStream) -> None:
    """Replay all letters of published batches, and check that each record has one row."""
    if not stream.offset:
        return
    corrected = inserting(stream.location)
    corrected.replay(overwrites_newer=True).run(None)
    assert inserting(stream.location).replay(overwrites_newer=True).run(None).passed == 0
    found = open_table(stream.location).scan(columns=["id"]).to_reader().read_all().column("id")
    assert Counter(found.to_pylist()) == {f"r{offset}": 1 for offset in range(stream.offset)}
