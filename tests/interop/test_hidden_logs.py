"""Queries of Apache Hudi omit the logs of a file group to which a failed write added a base file.

Non-blocking writers cause the other case; see ``tests.interop.test_non_blocking``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lakemark.config.table_properties import TableType
from lakemark.model.format_version import FormatVersion
from tests.clocks import SharedClock
from tests.interop import lakemark
from tests.interop.hidden_logs import hidden_logs, read_listed_snapshot
from tests.interop.oracle import Oracle, OracleError
from tests.interop.random_history.apache_acts import REFUSED
from tests.interop.random_history.kinds import Kind, Process
from tests.interop.random_history.lakemark_acts import as_table
from tests.interop.same_rows import assert_same_rows
from tests.tables import Row, commit

pytestmark = pytest.mark.oracle

KIND = Kind(TableType.MERGE_ON_READ, FormatVersion.V9, "record_index", has_metadata=True)
LISTED = {"hoodie.metadata.enable": "false", "hoodie.enable.data.skipping": "false"}


def test_listing_of_apache_hides_a_log_after_the_base_file_of_a_failed_write(
    oracle: Oracle, tmp_path: Path
) -> None:
    path = tmp_path / "orders"
    KIND.create(path)
    commit(Process.start(KIND, path, SharedClock()).writer(), [Row("a"), Row("b")])
    with pytest.raises(OracleError, match="alidat"):
        # A new key, so that Apache Hudi writes a new base file of the small file group.
        oracle.write(path, as_table([Row("a", 1), Row("c", 1)]), KIND.twin(), options=REFUSED)
    commit(Process.start(KIND, path, SharedClock()).writer(), [Row("b", 2, 2)])
    assert len(hidden_logs(path)) == 1
    listed, indexed = oracle.read(path, options=LISTED), oracle.read(path)
    assert_same_rows(read_listed_snapshot(path), listed)
    assert_same_rows(lakemark.read_snapshot(path), indexed)
    assert sorted(listed["ts"].to_pylist()) != sorted(indexed["ts"].to_pylist())
