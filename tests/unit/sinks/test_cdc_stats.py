"""The write stats of logs name the files before the commit, which CDC queries need."""

from __future__ import annotations

from uuid import uuid4

import pytest

from lakemark.config import keys
from lakemark.config.table_properties import TableProperties
from lakemark.model.commit_metadata import WriteStat
from lakemark.model.instant import Instant
from lakemark.operations.compact import request_compaction
from lakemark.storage import Storage, StorageLocation, open_storage
from tests.tables import Row, commit, spec, writer


def table_with(cdc_enabled: str) -> Storage:
    storage = open_storage(StorageLocation(f"memory://{uuid4().hex}/orders"))
    values = {**spec().to_properties().values, keys.CDC_ENABLED: cdc_enabled}
    storage.create(".hoodie/hoodie.properties", TableProperties(values).to_bytes())
    return storage


def stat_of(storage: Storage, instant: Instant) -> WriteStat:
    (stat,) = writer(storage).table.store.read_commit(instant).write_stats
    return stat


def file_name(stat: WriteStat) -> str:
    return (stat.path or "").rpartition("/")[2]


@pytest.mark.parametrize("plans_compaction", [False, True])
def test_stat_of_a_log_lists_the_files_before_it_if_cdc_is_enabled(plans_compaction: bool) -> None:
    storage = table_with("true")
    to = writer(storage)
    first, second = (stat_of(storage, commit(to, [Row("a", ts, ts)])) for ts in (1, 2))
    if plans_compaction:
        assert request_compaction(to.table) is not None
    third = stat_of(storage, commit(to, [Row("a", 3, 3)]))
    assert third.base_file == file_name(first)
    assert third.log_files == (file_name(second), file_name(third))


def test_stat_of_a_log_lists_itself_without_cdc() -> None:
    storage = table_with("false")
    to = writer(storage)
    first, _, third = (stat_of(storage, commit(to, [Row("a", ts, ts)])) for ts in (1, 2, 3))
    assert (third.base_file, third.log_files) == (file_name(first), (file_name(third),))
