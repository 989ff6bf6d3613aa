"""File names of the timeline are those of Apache Hudi, for reading and writing."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark.config import keys
from lakemark.config.table_properties import TableProperties
from lakemark.model.action import Action, State
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.storage import StorageLocation, open_storage
from lakemark.storage.storage import ObjectInfo
from lakemark.timeline.clock import UTC_CLOCK
from lakemark.timeline.layout import LayoutV1, LayoutV2, TimelineLayout, layout_of
from lakemark.timeline.timeline_store import TimelineStore

times = st.integers(min_value=20200101000000000, max_value=20991231235959999).map(str)


@st.composite
def instants(draw: st.DrawFn) -> Instant:
    action, state = draw(st.sampled_from(Action)), draw(st.sampled_from(State))
    pending = Instant(draw(times), action, State.REQUESTED)
    if state is State.COMPLETED:
        return pending.completed(draw(times))
    return pending if state is State.REQUESTED else pending.inflight()


def instant_of(layout: TimelineLayout, name: str, written: datetime) -> Instant | None:
    """Parse the instant of a file of this layout, in a table in UTC."""
    store = TimelineStore(open_storage(StorageLocation("memory://layouts")), layout)
    return store.instant_of(ObjectInfo(f"{layout.folder}/{name}", 0, written))


@given(instants())
def test_an_instant_of_layout_2_is_parsed_from_its_name(instant: Instant) -> None:
    layout = LayoutV2()
    assert layout.parse(layout.name_of(instant)) == instant


@given(instants(), st.datetimes(datetime(2100, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001
def test_an_instant_of_layout_1_is_parsed_from_name_and_modification_time(
    instant: Instant, written: datetime
) -> None:
    parsed = instant_of(LayoutV1(), LayoutV1().name_of(instant), written)
    assert parsed is not None
    assert parsed.requested_at == instant.requested_at
    assert (parsed.action, parsed.state) == (instant.action, instant.state)
    if parsed.completed_at is not None:
        completed_at = UTC_CLOCK.parse(parsed.completed_at)
        assert abs((completed_at - written).total_seconds()) < 0.001


@given(st.text(max_size=30) | st.from_regex(r"[0-9]{14}[._a-z0-9]{0,30}", fullmatch=True))
def test_every_file_name_is_an_instant_or_is_ignored(name: str) -> None:
    for layout in (LayoutV1(), LayoutV2()):
        parsed = layout.parse(name)
        assert parsed is None or layout.name_of(parsed) == name or ".commit.inflight" in name


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
        ("20261121134213837.clustering.requested", "20261121134213837.clustering.requested"),
        (
            "20261121134213837_20261121134215808.replacecommit",
            "20261121134213837.replacecommit.completed",
        ),
        ("20261121134330692_20261121134334868.savepoint", "20261121134330692.savepoint.completed"),
        ("20261121134330692.savepoint.inflight", "20261121134330692.savepoint.inflight"),
        ("20261121134338738.restore.requested", "20261121134338738.restore.requested"),
        ("00000000000000000.deltacommit.inflight", "00000000000000000.deltacommit.inflight"),
    ],
)
def test_names_that_apache_hudi_wrote_in_layout_2(name: str, expected: str) -> None:
    instant = LayoutV2().parse(name)
    assert str(instant) == expected
    assert instant is not None
    assert LayoutV2().name_of(instant) == name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("20261121133704738.deltacommit", "20261121133704738.deltacommit.completed"),
        ("20261121133704738.deltacommit.inflight", "20261121133704738.deltacommit.inflight"),
        ("20261121133647690.commit", "20261121133647690.commit.completed"),
        ("20261121133647690.commit.requested", "20261121133647690.commit.requested"),
        ("20261121133647690.inflight", "20261121133647690.commit.inflight"),
        ("20261121133803609.compaction.requested", "20261121133803609.compaction.requested"),
        ("20261121133757079.clean", "20261121133757079.clean.completed"),
        ("20210501123045.replacecommit.inflight", "20210501123045.replacecommit.inflight"),
        # In the metadata table of version 6 a service adds digits to the data instant.
        ("20261121133719014001.commit", "20261121133719014001.commit.completed"),
    ],
)
def test_names_that_apache_hudi_wrote_in_layout_1(name: str, expected: str) -> None:
    instant = LayoutV1().parse(name)
    assert str(instant) == expected
    assert instant is not None
    assert LayoutV1().name_of(instant) == name


@pytest.mark.parametrize(
    "name",
    [
        "history",
        "hoodie.properties",
        "hoodie.properties.backup",
        ".20261121134030668.deltacommit.requested.crc",
        "20261121134030668.unheardof.requested",
        "20261121134030668_.deltacommit",
        "20261121134030668.compaction",
        "manifest_1",
        "20261121134030668.deltacommit.requested.tmp",
    ],
)
def test_other_files_are_no_instants(name: str) -> None:
    assert LayoutV2().parse(name) is None
    assert LayoutV1().parse(name) is None


def test_an_upgraded_folder_keeps_completed_files_of_layout_1() -> None:
    written = datetime(2026, 1, 1, 0, 0, 9, 500_000, UTC)
    instant = instant_of(LayoutV2(), "20260101000000000.commit", written)
    assert instant is not None
    assert instant.completed_at == "20260101000009500"
    assert LayoutV2().name_of(instant) == "20260101000000000.commit"


def test_a_copy_with_older_modification_times_completed_no_earlier_than_requested() -> None:
    written = datetime(2020, 1, 1, tzinfo=UTC)
    instant = instant_of(LayoutV1(), "20260101000000000.commit", written)
    assert instant is not None
    assert instant.completed_at == "20260101000000000"


def test_properties_say_where_the_folders_are() -> None:
    def folders(version: FormatVersion, **stored: str) -> tuple[str, str]:
        values = {getattr(keys, name): value for name, value in stored.items()}
        layout = layout_of(TableProperties(values), version)
        return layout.folder, layout.archive_folder

    assert folders(FormatVersion.V9) == (".hoodie/timeline", ".hoodie/timeline/history")
    assert folders(FormatVersion.V8, TIMELINE_PATH="t", TIMELINE_HISTORY_PATH="h") == (
        ".hoodie/t",
        ".hoodie/t/h",
    )
    assert folders(FormatVersion.V6) == (".hoodie", ".hoodie/archived")
    assert folders(FormatVersion.V6, ARCHIVELOG_FOLDER="history") == (".hoodie", ".hoodie/history")
    assert folders(FormatVersion.V6, ARCHIVELOG_FOLDER="") == (".hoodie", ".hoodie")
