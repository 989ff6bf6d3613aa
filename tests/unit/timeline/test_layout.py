"""File names of the timeline: what Apache Hudi writes is what we write, and the reverse."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from table.model.action import Action, State
from table.model.instant import Instant
from table.timeline.layout import LayoutV2

times = st.integers(min_value=20200101000000000, max_value=20991231235959999).map(str)


@st.composite
def instants(draw: st.DrawFn) -> Instant:
    action, state = draw(st.sampled_from(Action)), draw(st.sampled_from(State))
    pending = Instant(draw(times), action, State.REQUESTED)
    if state is State.COMPLETED:
        return pending.completed(draw(times))
    return pending if state is State.REQUESTED else pending.inflight()


@given(instants())
def test_a_name_says_all_of_an_instant(instant: Instant) -> None:
    layout = LayoutV2()
    assert layout.parse(layout.name_of(instant)) == instant


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("20261121134030668.deltacommit.requested", "20261121134030668.deltacommit.requested"),
        ("20261121134030668.deltacommit.inflight", "20261121134030668.deltacommit.inflight"),
        (
            "20261121134030668_20261121134033031.deltacommit",
            "20261121134030668.deltacommit.completed",
        ),
        ("20261121134034827.compaction.inflight", "20261121134034827.compaction.inflight"),
        ("20261121134034827_20261121134036377.commit", "20261121134034827.commit.completed"),
        ("20261121134034827.inflight", "20261121134034827.commit.inflight"),
        ("20261121134313020_20261121134314478.rollback", "20261121134313020.rollback.completed"),
    ],
)
def test_names_that_apache_hudi_wrote(name: str, expected: str) -> None:
    instant = LayoutV2().parse(name)
    assert str(instant) == expected
    assert instant is not None
    assert LayoutV2().name_of(instant) == name


@pytest.mark.parametrize(
    "name",
    [
        "history",
        ".20261121134030668.deltacommit.requested.crc",
        "20261121134030668.unheardof.requested",
        "20261121134030668_.deltacommit",
        "manifest_1",
        "20261121134030668.deltacommit.requested.tmp",
    ],
)
def test_other_files_are_no_instants(name: str) -> None:
    assert LayoutV2().parse(name) is None
