from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from lakemark.timeline.clock import TimelineClock
from streamer.events import (
    BatchPlanned,
    BatchWritten,
    ChecksViolated,
    CompactionCompleted,
    CompactionFailed,
    CompactionResolved,
    CompactionStarted,
    Event,
    OffsetsLost,
    PartitionsChanged,
    PartitionsExpired,
    PreparationOutdated,
    RecordsRejected,
    Retrying,
    RulesViolated,
    RunFailed,
    RunStarted,
    RunStopped,
    ServiceCompleted,
    ServiceFailed,
    WarningLogged,
)
from streamer.metrics.metric_families import MetricFamilies
from streamer.metrics.run_metrics import BoundedLabel, RunMetrics
from streamer.metrics.table_shape import DEAD_LETTERS, ROWS, TableShape
from tests.depth import examples
from tests.unit.streamer.event_samples import CLASSES, of_class
from transforms.batch_checks import BatchCheck, CheckResult, CheckViolation
from transforms.expectations import Outcome, Rule
from transforms.violations import RuleViolations

DOCS = Path(__file__).parents[4] / "docs"
DOCUMENT = DOCS / "operating.md"
ALERTS = DOCS / "alerts.yaml"
#: Prometheus adds these labels to all metrics of a process.
LABELS_OF_PROMETHEUS = ("instance", "job")
COMPACTION = "20260501120000500"
STARTED = RunStarted("p", "orders", "/t", {0: 10, 1: 20}, True)


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Watched:
    """Returns the values of metrics that a scrape would return."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.metrics = RunMetrics("p", "orders", self.clock)

    def __call__(self, name: str, **labels: str) -> float:
        wanted = {"pipeline": "p", "topic": "orders", **labels}
        value = self.metrics.registry.get_sample_value(f"lakemark_{name}", wanted)
        assert value is not None, (name, labels)
        return value


@pytest.fixture
def watched() -> Watched:
    return Watched()


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
@settings(max_examples=examples(10), deadline=None)
@given(data=st.data())
def test_every_event_is_counted_and_what_is_shown_can_be_parsed(
    kind: type[Any], data: st.DataObject
) -> None:
    metrics = RunMetrics("p", "orders")
    metrics(STARTED)
    for event in data.draw(st.lists(of_class(kind), min_size=1, max_size=3)):
        metrics(event)
    text = generate_latest(metrics.registry).decode()
    assert {family.name for family in text_string_to_metric_families(text)}


def test_pipelines_of_one_process_have_their_own_values_of_the_same_metrics() -> None:
    families = MetricFamilies()
    running, failing = (RunMetrics(name, name, families=families) for name in ("a", "b"))
    for metrics in (running, failing):
        metrics(STARTED)
    failing(RunFailed("TopicNotFound", "no topic"))
    assert running.registry is failing.registry
    text = generate_latest(families.registry).decode()
    assert text.count("# TYPE lakemark_batch_seconds histogram") == 1
    values = {
        (sample.name, sample.labels["pipeline"], sample.labels["topic"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name in ("lakemark_running", "lakemark_failures_total")
    }
    assert values == {
        ("lakemark_running", "a", "a"): 1,
        ("lakemark_running", "b", "b"): 0,
        ("lakemark_failures_total", "b", "b"): 1,
    }


def test_violations_are_counted_by_rule_and_outcome_from_zero() -> None:
    rules = [
        Rule(path=f"expect.{n}", name=name, condition="n > 0", outcome=outcome)
        for n, (name, outcome) in enumerate([("a", Outcome.WARN), ("b", Outcome.FAIL)])
    ]
    metrics = RunMetrics("p", "orders", rules=rules)
    labels = {"pipeline": "p", "topic": "orders"}
    for counts in ([0.0, 0.0], [3.0, 2.0]):
        assert counts == [
            metrics.registry.get_sample_value(
                "lakemark_rule_violations_total",
                {**labels, "rule": rule.name, "outcome": rule.outcome.value},
            )
            for rule in rules
        ]
        violations = [RuleViolations("a", "warn", 3, "x"), RuleViolations("b", "fail", 2, "x")]
        metrics(RulesViolated(0, tuple(violations)))


def test_batches_that_violate_checks_are_counted_from_zero() -> None:
    check = BatchCheck(path="expect.0", name="a", query="from batch", outcome=Outcome.WARN)
    metrics = RunMetrics("p", "orders", checks=[check])
    labels = {"pipeline": "p", "topic": "orders", "check": "a", "outcome": "warn"}
    for count in (0.0, 1.0, 2.0):
        found = metrics.registry.get_sample_value("lakemark_check_violations_total", labels)
        assert found == count
        metrics(ChecksViolated(0, (CheckViolation("a", "warn", CheckResult(3, ("n=1",))),)))


def test_batch_is_counted_by_stage_and_kind(watched: Watched) -> None:
    watched.metrics(STARTED)
    watched.metrics(BatchPlanned(0, {0: 5, 1: 3}))
    assert watched("batch_in_progress_records") == 8
    written = BatchWritten(
        0,
        "20260501120000500",
        records_read=8,
        rows_written=6,
        rows_deleted=2,
        bytes_written=900,
        seconds=0.8,
        stage_s={"read": 4.0, "write": 0.5, "commit": 0.25},
        files_written=4,
        offsets_skipped=3,
        rows_moved=1,
        duplicates=7,
        filtered=2,
    )
    watched.metrics(written)
    watched.metrics(RecordsRejected(0, 2, "orders 0:7: no JSON", "/dead"))
    watched.metrics(PartitionsChanged(0, 3, "record key 'a' exists in partition 'x'"))
    counters = ["records_read", "rows_written", "rows_deleted", "bytes_written", "files_written"]
    assert [watched(f"{name}_total") for name in counters] == [8, 6, 2, 900, 4]
    assert watched("skipped_offsets_total") == 3
    assert watched("rows_moved_total") == 1
    assert watched("duplicates_dropped_total") == 7
    assert watched("records_filtered_total") == 2
    assert watched("records_rejected_total") == 2
    assert watched("partition_changes_total") == 3
    assert watched("stage_seconds_total", stage="write") == 0.5
    assert watched("batch_seconds_sum") == 0.8
    assert watched("batch_seconds_count") == 1
    assert watched("batch_in_progress_records") == 0
    assert watched("last_commit_timestamp_seconds") == 1_000
    assert watched("last_instant_timestamp_seconds") == 1_777_636_800.5


def test_times_of_instants_are_read_in_the_zone_of_the_timeline(watched: Watched) -> None:
    watched.metrics.use_clock(TimelineClock(ZoneInfo("Asia/Tokyo")))
    watched.metrics(BatchWritten(0, "20260501210000500", 5))
    assert watched("last_instant_timestamp_seconds") == 1_777_636_800.5


def test_lag_is_known_while_a_batch_is_stuck_and_its_age_grows(watched: Watched) -> None:
    metrics = watched.metrics
    metrics(STARTED)
    metrics(BatchPlanned(0, {0: 5, 1: 0}))
    assert watched("lag_records", partition="0") == 5
    assert math.isnan(watched("lag_seconds", partition="0")), "the topic was not polled yet"
    metrics.record_lag({0: 7, 1: 0}, {0: 990.0})
    assert watched("lag_records", partition="0") == 7
    watched.clock.now += 60
    assert watched("lag_seconds", partition="0") == 70
    assert watched("lag_seconds", partition="1") == 0
    metrics(BatchWritten(0, "20260501120000500", 5, lag={0: 0, 1: 0}))
    assert metrics.position is not None
    assert metrics.position.offsets == {0: 15, 1: 20}
    assert watched("next_offset", partition="0") == 15
    assert watched("lag_records", partition="0") == 0
    assert watched("lag_seconds", partition="0") == 0


def test_nothing_is_known_of_the_topic_before_the_start(watched: Watched) -> None:
    assert watched.metrics.position is None


def test_a_failed_attempt_commits_no_offsets(watched: Watched) -> None:
    watched.metrics(STARTED)
    watched.metrics(BatchPlanned(0, {0: 5}))
    watched.metrics(Retrying("no broker", 1, 5, 1.0, "StreamInterrupted"))
    watched.metrics(STARTED)
    watched.metrics(BatchPlanned(0, {0: 4}))
    assert watched("consecutive_failures") == 1
    watched.metrics(BatchWritten(0, None, 4))
    assert watched("next_offset", partition="0") == 14
    assert watched("consecutive_failures") == 0
    assert watched("stream_starts_total") == 2
    assert watched("retries_total") == 1


def test_failures_and_services_are_counted_by_kind(watched: Watched) -> None:
    watched.metrics(Retrying("no broker", 2, 5, 1.0, "StreamInterrupted"))
    watched.metrics(RunFailed("DataLoss", "gone"))
    lost = {"topic": "orders", "partition": 3, "from": 5, "to": 9, "count": 4}
    watched.metrics(OffsetsLost("orders", ("a", "b"), (lost, {**lost, "count": None})))
    watched.metrics(CompactionCompleted("20260501120000500", 2, 70, 800, 1.5, "/lake/orders"))
    watched.metrics(ServiceCompleted("rollback", "1 instant", 0.5))
    watched.metrics(WarningLogged("warning", "lakemark.timeline.locks.table_lock", "it stays"))
    watched.metrics(PartitionsExpired("1", ("a", "b"), 3, 500, None, 2.5, "/lake/orders"))
    watched.metrics(ServiceFailed("partition_expiry", "busy", 1, 60.0, "LockTimeout", "/lake"))
    for service in ("bucket_preparation", "bucket_preparation", "clustering_preparation"):
        watched.metrics(PreparationOutdated(service, "it was compacted", False, "/lake/orders"))
    assert watched("outdated_preparations_total", service="bucket_preparation") == 2
    assert watched("outdated_preparations_total", service="clustering_preparation") == 1
    assert watched("expired_partitions_total") == 2
    assert watched("expired_bytes_total") == 500
    assert watched("service_seconds_sum", service="partition_expiry") == 2.5
    assert watched("service_failures_total", service="partition_expiry") == 1
    assert watched("warnings_total") == 1
    assert watched("failures_total", type="StreamInterrupted") == 1
    assert watched("failures_total", type="DataLoss") == 1
    assert watched("lost_ranges_total") == 2
    assert watched("lost_offsets_total", partition="3") == 4
    assert watched("service_seconds_sum", service="compaction") == 1.5
    assert watched("service_seconds_count", service="rollback") == 1
    assert watched("compacted_rows_total") == 70


def test_the_shape_of_the_table_is_shown(watched: Watched) -> None:
    since = datetime.fromtimestamp(watched.clock.now - 90, UTC).strftime("%Y%m%d%H%M%S000")
    shape = TableShape(4, 9, 1_000, 250, 1, 3, 5, since, {"clean": 2}, {("log", "1MiB"): 7}, 12)
    watched.metrics.record_table(ROWS, shape)
    letters = replace(shape, log_files=1, active_instants=3, pending={"clean": 0})
    watched.metrics.record_table(DEAD_LETTERS, letters)
    assert watched("table_pending_services", table="rows", action="clean") == 2
    assert watched("table_pending_services", table="dead_letters", action="clean") == 0
    assert watched("table_files", table="rows", kind="log", size="1MiB") == 7
    assert watched("table_active_instants", table="dead_letters") == 3
    names = ["file_groups", "log_files", "base_bytes", "log_bytes", "pending_compactions"]
    assert [watched(f"table_{name}") for name in names] == [4, 9, 1_000, 250, 1]
    assert watched("table_delta_commits_since_compaction") == 3
    assert watched("table_delta_commits_uncompacted") == 5
    assert watched("table_pending_compaction_age_seconds") == 90
    watched.clock.now += 10
    assert watched("table_pending_compaction_age_seconds") == 100


@pytest.mark.parametrize(
    "end",
    [
        CompactionCompleted(COMPACTION, 2, 70, 800, 1.5, "/lake/orders"),
        CompactionResolved(COMPACTION, "/lake/orders"),
    ],
)
def test_asynchronous_compaction_has_its_own_metrics(
    watched: Watched, end: CompactionCompleted | CompactionResolved
) -> None:
    watched.metrics(CompactionStarted(COMPACTION, 2, 800, "/lake/orders"))
    assert watched("compaction_running") == 1
    for failures in (1, 2):
        watched.clock.now += 7
        failed = CompactionFailed(
            COMPACTION, "busy", failures, 7.0, 1.0, "StorageUnavailable", "/lake/orders"
        )
        watched.metrics(failed)
    assert watched("compaction_running") == 0
    assert watched("consecutive_compaction_failures") == 2
    assert watched("consecutive_failures") == 0, "ingestion is well"
    assert watched("last_compaction_failure_timestamp_seconds") == watched.clock.now
    watched.metrics(CompactionResolved("another", "/lake/orders"))
    assert watched("consecutive_compaction_failures") == 2
    watched.metrics(end)
    assert watched("consecutive_compaction_failures") == 0
    assert watched("compaction_failures_total") == 2


@pytest.mark.parametrize(
    "end", [RunStopped("interrupted", {}, 0, 0, 1.0), RunFailed("TopicReplaced", "gone")]
)
def test_no_compaction_is_at_work_once_the_run_has_ended(watched: Watched, end: Event) -> None:
    watched.metrics(CompactionStarted("20260501120000500", 2, 800, "/lake/orders"))
    watched.metrics(end)
    assert watched("compaction_running") == 0


@given(st.lists(st.text(), max_size=60))
def test_a_label_has_a_bounded_number_of_values(values: list[str]) -> None:
    label = BoundedLabel(at_most=8)
    assert len({label(value) for value in values} - {"other"}) <= 8
    assert label(values[0] if values else "first") == (values[0] if values else "first")


def test_exported_metrics_are_documented(watched: Watched) -> None:
    documented = set(re.findall(r"^\| `(lakemark_\w+)", DOCUMENT.read_text(), re.MULTILINE))
    assert documented == exported(watched)


def test_alert_rules_use_metrics_that_are_exported(watched: Watched) -> None:
    for rule in alert_rules():
        used = set(re.findall(r"\blakemark_\w+", rule["expr"]))
        assert used or rule["expr"].startswith("up{"), rule
        assert used <= exported(watched), rule


def test_alert_rules_group_by_labels_that_every_metric_has() -> None:
    expressions = " ".join(rule["expr"] for rule in alert_rules())
    groupings = re.findall(r"\b(?:by|on) \(([^)]*)\)", expressions)
    assert groupings
    assert set(groupings) == {"pipeline, topic", ", ".join(LABELS_OF_PROMETHEUS)}


def test_each_alert_rule_is_explained() -> None:
    explained = re.findall(r"^\| `(Lakemark\w+)` \|", DOCUMENT.read_text(), re.MULTILINE)
    assert explained == [rule["alert"] for rule in alert_rules()]


def test_board_and_alerts_use_metrics_and_labels_that_are_exported(watched: Watched) -> None:
    labels = exported_labels(watched)
    for expression in [*board_expressions(), *(rule["expr"] for rule in alert_rules())]:
        series = re.findall(r"\b(lakemark_\w+)(?:\{([^}]*)\})?", expression)
        assert series or expression.startswith("up{"), expression
        known = set.intersection(*(labels[name] for name, _ in series)) if series else set()
        for name, matchers in series:
            used = {matcher.partition("=")[0] for matcher in filter(None, matchers.split(","))}
            assert used <= labels[name], expression
        grouped = re.findall(r"\b(?:by|on) \(([^)]*)\)", expression)
        used = {label for group in grouped for label in group.split(", ")}
        assert used <= known.union(LABELS_OF_PROMETHEUS), expression


def test_legends_of_the_board_name_labels_of_their_series(watched: Watched) -> None:
    labels = exported_labels(watched)
    for target in board_targets():
        names = re.findall(r"\blakemark_\w+", target["expr"])
        used = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        assert used
        grouped = re.findall(r"\bby \(([^)]*)\)", target["expr"])
        left = set(grouped[-1].split(", ")) if grouped else labels[names[0]]
        assert used <= left, target


def test_each_metric_of_an_alert_is_on_the_board() -> None:
    shown = set(re.findall(r"\blakemark_\w+", " ".join(board_expressions())))
    alerting = set(re.findall(r"\blakemark_\w+", " ".join(r["expr"] for r in alert_rules())))
    assert alerting <= shown


def test_the_scrape_example_loads_the_alerts_under_the_name_that_they_use() -> None:
    config = yaml.safe_load((DOCS / "prometheus.yaml").read_text())
    assert [DOCS / name for name in config["rule_files"]] == [ALERTS]
    (job,) = config["scrape_configs"]
    (down,) = [rule for rule in alert_rules() if rule["alert"] == "LakemarkDown"]
    assert down["expr"].startswith(f'up{{job="{job["job_name"]}"}}')
    (static,) = job["static_configs"]
    assert all(target.endswith(":9464") for target in static["targets"])
    assert "port: 9464" in DOCUMENT.read_text()


def test_panels_of_the_board_do_not_overlap() -> None:
    taken = set[tuple[int, int]]()
    for panel in board()["panels"]:
        at = panel["gridPos"]
        cells = {
            (column, row)
            for column in range(at["x"], at["x"] + at["w"])
            for row in range(at["y"], at["y"] + at["h"])
        }
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


def board() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DOCS / "grafana.json").read_text())
    return found


def board_targets() -> list[dict[str, str]]:
    return [target for panel in board()["panels"] for target in panel.get("targets", ())]


def board_expressions() -> list[str]:
    return [target["expr"] for target in board_targets()]


def exported_labels(watched: Watched) -> dict[str, set[str]]:
    """Return the labels of each series by its name in queries."""
    found = dict[str, set[str]]()
    for name, collector in watched.metrics.registry._names_to_collectors.items():
        labels = set(getattr(collector, "_labelnames", ()))
        found[name] = labels | {"le"} if name.endswith("_bucket") else labels
    return found


def exported(watched: Watched) -> set[str]:
    """Return the names that the metrics of a run have in queries."""
    return {
        family.name + ("_total" if family.type == "counter" else "")
        for family in watched.metrics.registry.collect()
        if family.name.startswith("lakemark_")
    }


def alert_rules() -> list[dict[str, str]]:
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    rules: list[dict[str, str]] = group["rules"]
    return rules
