"""The message of the format ``hudi`` is that of Apache Hudi's callbacks."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest

from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from streamer.hooks.messages import encode_hudi_commit
from streamer.hooks.notices import CommitCompleted, PipelineFacts
from tests.fixtures.webhook import Webhook
from tests.interop.oracle import ApacheTable, Oracle

pytestmark = pytest.mark.oracle


def test_message_about_a_commit_is_that_of_apache_hudi(
    oracle: Oracle, tmp_path: Path, webhook: Webhook
) -> None:
    path = tmp_path / "orders"
    options = {
        "hoodie.write.commit.callback.on": "true",
        "hoodie.write.commit.callback.http.url": webhook.url,
    }
    rows = pa.table({"id": ["a", "b"], "region": ["eu", "us"], "n": [1, 2]})
    table = ApacheTable("orders", ["id"], ["region"], ["n"], extra=options)
    instant = oracle.write(path, rows, table)
    (theirs,) = webhook.await_messages(1)
    opened = open_table(StorageLocation(str(path)))
    (commit,) = opened.timeline.completed()
    facts = PipelineFacts(
        pipeline="orders",
        identity="",
        source_kind="kafka",
        source="orders",
        brokers="localhost:9092",
        table="orders",
        path=str(path),
    )
    notice = CommitCompleted(
        facts=facts,
        run_id=uuid4(),
        instant=commit,
        completed_at=datetime.now(UTC),
        metadata=opened.store.read_commit(commit),
    )
    ours = json.loads(encode_hudi_commit(notice))
    assert ours.keys() == theirs.keys()
    for name in ("commitTime", "tableName", "basePath"):
        assert ours[name] == theirs[name]
    assert ours["commitTime"] == instant.requested_at
    pairs = zip(ours["hoodieWriteStat"], theirs["hoodieWriteStat"], strict=True)
    for own, apache in pairs:
        common = own.keys() & apache.keys()
        assert {"fileId", "path", "partitionPath", "numWrites", "fileSizeInBytes"} <= common
        assert {name: own[name] for name in common} == {name: apache[name] for name in common}
    # Apache Hudi writes only whether it has these two values, and not the values.
    for name in ("commitActionType", "extraMetadata"):
        assert theirs[name] == {"empty": False, "present": True}
    assert ours["commitActionType"] == instant.action
    assert "schema" in ours["extraMetadata"]
