from __future__ import annotations

import io
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from streamer import events
from streamer.display import LiveDisplay, PlainLines, show_run
from streamer.event_text import describe
from streamer.events import Event
from tests.depth import examples
from tests.unit.streamer.event_samples import CLASSES, of_class
from transforms.batch_checks import CheckResult, CheckViolation
from transforms.violations import RuleViolations

BATCH = events.BatchWritten(
    batch_id=2,
    instant="20260501000000000",
    records_read=1_000,
    rows_written=900,
    rows_deleted=10,
    rejects=3,
    bytes_written=1_500_000,
    seconds=0.6,
    stage_s={"read": 0.25, "write": 0.5},
    lag={0: 4, 1: 6},
)
DESCRIBED: list[tuple[Event, str]] = [
    (
        events.MetricsServed("127.0.0.1", 9464),
        "metrics and health at http://127.0.0.1:9464/metrics, /health, /ready",
    ),
    (
        events.MetricsServed("::1", 9464, True),
        "status at http://[::1]:9464/, metrics and health at http://[::1]:9464/metrics, /health, "
        "/ready",
    ),
    (events.ActionRequested("pause"), "asked over HTTP to pause"),
    (events.RunPaused(), "paused"),
    (events.RunResumed(61.4), "resumed after 61 s"),
    (
        events.SnapshotRead("s3://exports/orders", 3, 1_200, 61.4),
        "snapshot s3://exports/orders is read: 3 batches, 1,200 rows in 61.4 s; the topic follows",
    ),
    (
        events.RunStarted("p", "orders", "/lake/[x]", {0: 5, 1: 7}, True, "0:5, 1:7"),
        "p resumes: orders [0:5, 1:7] -> /lake/[x]",
    ),
    (
        events.RunStarted("p", "/in", "/t", {}, False, "from the first file"),
        "p starts: /in [from the first file] -> /t",
    ),
    (events.RunStarted("p", "orders", "/t", {}, False), "p starts: orders -> /t"),
    (
        events.OffsetsLost("orders", ("partition 0 is gone",)),
        "records of topic orders were lost and are skipped: partition 0 is gone",
    ),
    (events.Alive({0: 9}, {0: 4, 1: 0}, 61.4, True), "alive: 4 behind, last commit 61 s ago"),
    (events.Alive({0: 9}, {}, 61.4, True), "alive: lag unknown, last commit 61 s ago"),
    (
        events.Alive({0: 9}, {0: 0}, 61.4, False),
        "alive: 0 behind, no commit since the start 61 s ago",
    ),
    (
        events.WarningLogged("warning", "lakemark.timeline.locks.table_lock", "it stays"),
        "warning (lakemark.timeline.locks.table_lock): it stays",
    ),
    (events.RunStopping("batch"), "stopping after this batch"),
    (events.RunStopping("compaction"), "stopping after this compaction"),
    (events.RunStopping(""), "stopping"),
    (events.BatchPlanned(2, {0: 600, 1: 400}), "batch 2: 1,000 records planned"),
    (
        BATCH,
        "batch 2: 1,000 records, 900 rows (10 deletes), 3 rejects, 1.4 MiB in 0.60 s "
        "(read 0.25, write 0.50), 10 behind, commit 20260501000000000",
    ),
    (
        events.BatchWritten(3, None, 0),
        "batch 3: 0 records, 0 rows (0 deletes), 0 rejects, 0 B in 0.00 s, nothing to commit",
    ),
    (
        events.RecordsRejected(2, 3, "orders 0:7: no JSON", "/dead"),
        "batch 2: 3 rejected, the first: orders 0:7: no JSON -> /dead",
    ),
    (
        events.RecordsRejected(2, 1, "orders 0:7: no JSON", "/dead"),
        "batch 2: 1 rejected: orders 0:7: no JSON -> /dead",
    ),
    (
        events.RulesViolated(
            2,
            (
                RuleViolations("n is positive", "dead_letter", 1, "orders 0:7"),
                RuleViolations("n < 9", "warn", 2_000, "orders 1:3"),
            ),
        ),
        "batch 2: rules violated: n is positive: 1 row (dead_letter) of record orders 0:7; "
        "n < 9: 2,000 rows (warn), the first of record orders 1:3",
    ),
    (
        events.RulesViolated(
            2, tuple(RuleViolations(rule, "warn", 1, "orders 0:7") for rule in "abcdefg")
        ),
        "batch 2: rules violated: "
        + "; ".join(f"{rule}: 1 row (warn) of record orders 0:7" for rule in "abcde")
        + "; and 2 further rules",
    ),
    (
        events.ChecksViolated(
            2,
            (
                CheckViolation("unique", "fail", CheckResult(2, ("id=a", "id=b"))),
                CheckViolation("small", "warn", CheckResult(error="no int")),
            ),
        ),
        "batch 2: checks violated: unique (fail) returned 2 rows, the first: id=a; id=b; "
        "small (warn) cannot judge the batch: no int",
    ),
    (
        events.ChecksViolated(
            2, tuple(CheckViolation(name, "warn", CheckResult(1, ("n=1",))) for name in "abcdef")
        ),
        "batch 2: checks violated: "
        + "; ".join(f"{name} (warn) returned 1 row: n=1" for name in "abcde")
        + "; and 1 further check",
    ),
    (
        events.PartitionsChanged(2, 3, "record key 'a' exists in partition 'x'"),
        "batch 2: 3 rows whose key is in another partition, "
        "such as: record key 'a' exists in partition 'x'",
    ),
    (
        events.SchemaEvolved(2, ("note string", "n int32 -> int64")),
        "batch 2: columns changed: note string, n int32 -> int64",
    ),
    (
        events.CompactionCompleted("20260501000000001", 4, 900, 3 * 1024**3, 1.5, "/lake/orders"),
        "compaction 20260501000000001 of orders: 4 file groups, 900 rows, 3.0 GiB in 1.50 s",
    ),
    (
        events.CompactionResolved("20260501000000001", "/lake/orders"),
        "compaction 20260501000000001 of orders is no longer pending: another writer has "
        "completed or removed it",
    ),
    (
        events.ServiceCompleted("cleaning", "3 files", 0.1, "s3://lake/orders_dead_letters/"),
        "cleaning of orders_dead_letters: 3 files in 0.10 s",
    ),
    (
        events.PartitionsExpired(
            "20260501000000001", tuple("abcdef"), 9, 3 * 1024**3, 900, 1.5, "/lake/orders"
        ),
        "commit 20260501000000001 of orders: 6 partitions expired (a, b, c, d, e, …): 900 rows, "
        "9 files, 3.0 GiB in 1.50 s",
    ),
    (
        events.ServiceFailed("partition_expiry", "busy", 1, 60.0, "LockTimeout", "/lake/orders"),
        "partition_expiry of orders failed (1 failure), retrying in 60 s: LockTimeout: busy",
    ),
    (
        events.PreparationOutdated("clustering_preparation", "all changed", True, "/lake/orders"),
        "clustering_preparation of orders is outdated, next time without preparation: all changed",
    ),
    (
        events.PreparationOutdated("bucket_preparation", "1 changed", False, "/lake/orders"),
        "bucket_preparation of orders is outdated, trying again: 1 changed",
    ),
    (events.ServiceCompleted("rollback", "1, 2", 0.1), "rollback: 1, 2 in 0.10 s"),
    (
        events.Retrying("no broker", 1, 5, 2.0),
        "failed (attempt 1 of 5), retrying in 2 s: no broker",
    ),
    (
        events.ClusteringAwaited("a plan is about to replace x", 3, 2.0),
        "waiting, looking again in 2 s: a plan is about to replace x",
    ),
    (
        events.RunStopped("caught up", {0: 9}, 3, 900, 12.0, "0:9"),
        "stopped (caught up): 3 batches, 900 rows in 12.0 s, next [0:9]",
    ),
    (
        events.RunStopped("interrupted", {}, 1, 1, 2.0),
        "stopped (interrupted): 1 batch, 1 row in 2.0 s",
    ),
]


def test_batch_of_a_route_names_the_number_of_its_tables() -> None:
    batch = events.BatchWritten(
        1, None, 3_003, rejects=1, seconds=0.6, tables_written=2, rows_of_tables=3_000
    )
    line = "batch 1: 3,003 records, 1 reject, 3,000 rows written to 2 tables in 0.60 s"
    assert describe(batch) == line


@pytest.mark.parametrize(("event", "line"), DESCRIBED, ids=lambda v: type(v).__name__)
def test_each_event_is_one_line(event: Event, line: str) -> None:
    assert describe(event) == line


def test_a_log_has_a_line_for_each_event_and_no_codes() -> None:
    out = io.StringIO()
    with show_run(Console(file=out, width=40)) as listener:
        assert isinstance(listener, PlainLines)
        for event, _ in DESCRIBED:
            listener(event)
    lines = out.getvalue().splitlines()
    assert [re.sub(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ", "", line) for line in lines] == [
        text for _, text in DESCRIBED
    ]


@pytest.mark.parametrize("is_terminal", [False, True])
def test_no_secret_is_shown(is_terminal: bool) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=is_terminal, width=120)
    with show_run(console, lambda text: text.replace("hidden", "***")) as listener:
        listener(events.Retrying("password=hidden", 1, 5, 1.0))
    assert "password=***" in out.getvalue()
    assert "hidden" not in out.getvalue()


def test_a_failure_is_left_to_the_message_that_ends_the_command() -> None:
    failure = events.RunFailed("DataLoss", "records are gone")
    assert describe(failure) == "failed: DataLoss: records are gone"
    for is_terminal in (True, False):
        out = io.StringIO()
        with show_run(Console(file=out, force_terminal=is_terminal, width=120)) as listener:
            listener(failure)
        assert "failed" not in out.getvalue()


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
@settings(max_examples=examples(20), deadline=None)
@given(data=st.data())
def test_every_event_has_a_description(kind: type[Any], data: st.DataObject) -> None:
    assert describe(data.draw(of_class(kind)))


def test_terminal_shows_totals_batches_and_notes() -> None:
    shown = LiveDisplay()
    console = Console(file=io.StringIO(), width=160)
    for event, _ in DESCRIBED:
        shown(event)
        console.print(shown.render())
    assert isinstance(console.file, io.StringIO)
    console.file.seek(0)
    console.file.truncate()
    console.print(shown.render())
    picture = console.file.getvalue()
    assert "1,000 records  900 rows  3 rejects  1 commit " in picture
    assert "20260501000000000" in picture
    assert "retrying in 2 s: no broker" in picture


def test_a_terminal_is_used_where_there_is_one() -> None:
    out = io.StringIO()
    with show_run(Console(file=out, force_terminal=True, width=120)) as listener:
        assert isinstance(listener, LiveDisplay)
        listener(BATCH)
    assert "20260501000000000" in out.getvalue()
