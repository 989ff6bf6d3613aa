"""Logs of version 6 are named after their slice, so their versions define their order."""

from __future__ import annotations

from lakemark.model.format_version import FormatVersion
from tests.table_services import make_plain, new_storage
from tests.tables import Row, commit, writer


def test_each_log_of_a_slice_has_the_next_version() -> None:
    storage = new_storage()
    make_plain(storage, version=FormatVersion.V6)
    for ts in range(1, 5):
        commit(writer(storage), [Row("a", ts, ts)])
    (file_slice,) = writer(storage).table.view().latest_slices()
    assert [log.name.version for log in file_slice.logs] == [1, 2, 3]
    assert {log.name.instant for log in file_slice.logs} == {file_slice.base_instant}
