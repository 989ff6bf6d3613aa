"""Random schedules of a routed pipeline against a model: each record is once in its table."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.errors import HudiError, Permanent, Retriable
from tests.depth import examples
from tests.routed_stream import Killed, Process, RoutedTopic, watched

_TABLES = ("a", "b", "c", "/")

#: What happens before a run: records are sent, tables fail or are mended, and the run dies or not.
_Step = tuple[list[str], Mapping[str, bool], int | None, int]

_STEPS: st.SearchStrategy[list[_Step]] = st.lists(
    st.tuples(
        st.lists(st.sampled_from(_TABLES), max_size=5),
        st.dictionaries(st.sampled_from(_TABLES[:3]), st.booleans(), max_size=2),
        st.none() | st.integers(0, 12),
        st.integers(1, 4),
    ),
    min_size=1,
    max_size=5,
)


def _error(is_transient: bool) -> HudiError:
    return Retriable("no answer") if is_transient else Permanent("broken")


@settings(max_examples=examples(40), deadline=None)
@given(_STEPS)
def test_each_record_is_once_in_its_table_after_any_schedule(steps: list[_Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        topic = RoutedTopic(Path(folder))
        sent: dict[str, list[str]] = {name: [] for name in _TABLES}
        for names, failing, dies_at, batch_size in steps:
            for name in names:
                number = str(sum(map(len, sent.values())))
                topic.send({"id": number, "type": name, "n": 0})
                sent[name].append(number)
            topic.failing = {name: _error(is_transient) for name, is_transient in failing.items()}
            _run(topic, dies_at, batch_size)
            for name in _TABLES[:3]:
                rows = topic.rows(name)
                assert len({*rows}) == len(rows), f"{name} has rows twice: {rows}"
                assert {*rows} <= {*sent[name]}
        topic.failing = {}
        topic.run()
        for name in _TABLES[:3]:
            assert topic.rows(name) == sorted(sent[name])
        assert topic.letters().total() == len(sent["/"])


def _run(topic: RoutedTopic, dies_at: int | None, batch_size: int) -> None:
    with watched(Process(dies_at)):
        try:
            topic.run(batch_size=batch_size)
        except Killed:
            pass
