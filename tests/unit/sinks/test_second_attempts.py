"""A task of a batch runs again after the topic has changed: the batch is undone and retried."""

from __future__ import annotations

from dataclasses import replace
from typing import cast
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from lakemark.model.action import Action
from lakemark.storage import StorageLocation
from sinks.batch import KafkaBatch
from sinks.hudi.exchange import OpenWrite, PortionResult, Prepare
from tests.json_stream import InThisProcess, JsonStream
from tests.tables import data_files


class CompactedMeanwhile(InThisProcess):
    """Runs the first batch twice.

    The result of the first run is lost, and the topic has lost the first record before the second
    run.
    """

    def run(
        self, batch: KafkaBatch, prepare: Prepare, open_write: OpenWrite
    ) -> list[PortionResult]:
        if not self.attempts:
            super().run(batch, prepare, open_write)
        left = cast(pa.Table, batch.records).slice(1)
        return super().run(replace(batch, records=cast(DataFrame, left)), prepare, open_write)


@pytest.mark.parametrize("appends", [False, True], ids=["base files", "log files"])
def test_a_batch_whose_tasks_read_different_records_is_undone_and_written_anew(
    appends: bool,
) -> None:
    stream = JsonStream(StorageLocation(f"memory://{uuid4().hex}"))
    if appends:
        stream.write([{"id": key, "ts": 1} for key in "abcd"])
    before = set(data_files(stream.rows.table.storage))
    stream.exchange = CompactedMeanwhile()
    # The log cleaner leaves a key's last record, though by its ordering value it is the older one.
    batch = [{"id": "a", "ts": 9, "n": 1}, {"id": "b", "ts": 9}, {"id": "a", "ts": 5, "n": 2}]
    result = stream.write(batch)
    assert stream.exchange.attempts == [3, 2, 2]
    assert result.seconds["conflict"] > 0
    rows = stream.read()
    assert (rows["a"], rows["b"]) == ({"id": "a", "ts": 5, "n": 2}, {"id": "b", "ts": 9})
    timeline = stream.rows.table.store.load()
    assert len(timeline.completed(Action.ROLLBACK)) == 1
    assert not timeline.pending()
    added = set(data_files(stream.rows.table.storage)) - before
    assert len(added) == result.files, "what the first attempts wrote is gone"
