"""A job whose topics are found while it runs, with stand-ins for its broker and its pipelines."""

from __future__ import annotations

import json
import re
import resource
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lakemark.errors import HudiError, Permanent
from streamer.config.pipeline import PipelineConfig
from streamer.events import Event, Retrying, RunFailed, RunStarted, RunStopped, TopicsFound
from streamer.job import job as job_module
from streamer.job import job_pipeline, topic_discovery
from streamer.job.job import Job, PipelinesFailed
from streamer.job.job_pipeline import JobPipeline
from streamer.job.plan import plan_job
from streamer.jvm_exit import JvmEnded
from streamer.metrics.server import RunMonitors
from streamer.sources.errors import BrokerUnreachable, NoTopicMatches, TopicNotFound
from streamer.status.control import RunAction
from tests.unit.streamer.job.files import write
from tests.waiting import until

BROKER = "broker:1"

#: Seconds between two searches, and before a failed one is repeated.
SOON_S = 0.01

#: Longer than anything takes that happens by itself.
LONG_S = 120.0


class Broker:
    """Answers which topics exist, or fails.

    Attributes:
        topics: the topics.
        failure: why each search fails; None if searches succeed.
        searches: how many searches have begun.
    """

    def __init__(self, topics: Sequence[str] = ()) -> None:
        self.topics, self.searches = list(topics), 0
        self.failure: Exception | None = None
        self._may_answer = threading.Event()
        self._may_answer.set()

    def list_topics(self, *_: object) -> list[str]:
        self.searches += 1
        assert self._may_answer.wait(LONG_S)
        if self.failure is not None:
            raise self.failure
        return list(self.topics)

    @contextmanager
    def answering_later(self) -> Iterator[None]:
        """Answer no search until the block ends; the answers of earlier ones were used before."""
        self._may_answer.clear()
        searches = self.searches
        until(lambda: self.searches > searches)
        try:
            yield
        finally:
            self._may_answer.set()


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    """A broker, for pipelines that run as long as it has their topics."""
    broker = Broker()

    def run(self: JobPipeline) -> None:
        config = self._config
        self._listener(RunStarted(config.name, config.kafka.topic, config.table.path, {}, False))
        while not self._waits_no_longer():
            if config.kafka.topic not in broker.topics:
                raise TopicNotFound(config.kafka.topic, BROKER)
            self._stopping.wait(SOON_S)
        self._listener(RunStopped("interrupted", {}, 0, 0, 0.0))

    monkeypatch.setattr(topic_discovery, "list_topics", broker.list_topics)
    monkeypatch.setattr(JobPipeline, "_run_loop", run)
    monkeypatch.setattr(job_module, "_POLL_S", SOON_S)
    monkeypatch.setattr(job_pipeline, "_MISSING_FOR_S", 0.0)
    return broker


def of_pattern(
    folder: Path, name: str, lake: str, mode: str = "continuous", **sections: Any
) -> str:
    """Write a file that describes a pipeline for each topic that begins with ``shop.``."""
    source = {"bootstrap_servers": BROKER, "topic_pattern": r"shop\..*"}
    retry = {"backoff_s": SOON_S, "max_backoff_s": SOON_S}
    return write(
        folder,
        name,
        source={**source, "topic_interval_s": SOON_S},
        table={"path": f"{folder}/{lake}/{{topic}}", "record_key": "id"},
        run={"retry": retry, "mode": mode},
        metrics={"port": 0},
        **sections,
    )


class Running:
    """A job in a thread."""

    def __init__(self, files: Sequence[str]) -> None:
        plan = plan_job(files)
        self.events: dict[str, list[Event]] = {}
        self.monitors = RunMonitors(plan.process.metrics, str)
        process = SimpleNamespace(spark=None, schedule_of=_nothing, use_pool=_nothing)
        self.job = Job(plan, cast(Any, process), self.monitors, self._listener)
        self.failure: HudiError | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    @contextmanager
    def until_end(self) -> Iterator[Running]:
        self._thread.start()
        try:
            yield self
        finally:
            self.job.stop()
            self._thread.join(LONG_S)
        assert not self.job.has_unfinished_work

    @property
    def names(self) -> list[str]:
        return [one.pipeline for one in self.job.outcomes]

    def outcome(self, name: str) -> str:
        (found,) = [one for one in self.job.outcomes if one.pipeline == name]
        return found.result

    def reasons(self) -> list[str]:
        return self.monitors.health.verdict().reason.splitlines()

    def _listener(self, name: str) -> Callable[[Event], None]:
        return self.events.setdefault(name, []).append

    def _run(self) -> None:
        try:
            self.job.run()
        except HudiError as error:
            self.failure = error


def _nothing(_: PipelineConfig | str) -> None:
    return None


@pytest.fixture
def _many_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_many_switches")
def test_topics_of_two_patterns_get_one_pipeline_each(broker: Broker, tmp_path: Path) -> None:
    broker.topics = [f"shop.{number}" for number in range(60)]
    files = [of_pattern(tmp_path, name, "lake") for name in ("a", "b")]
    with Running(files).until_end() as run:
        until(lambda: sum(one.has_failed for one in run.job.outcomes) >= len(broker.topics))
        until(lambda: all(run.events.get(topic) for topic in broker.topics))
        assert len(run.names) == 2 + 2 * len(broker.topics)
        refused = [one.error for one in run.job.outcomes if one.has_failed]
        assert all("is in use by table.path of" in error for error in refused)
        assert run.reasons()[0] == "60 of 120 pipelines are ready"


def test_refused_topic_hides_no_pipeline_of_its_name(broker: Broker, tmp_path: Path) -> None:
    broker.topics = ["shop.a", "other"]
    named = write(tmp_path, "other", name="shop.a", source={
        "bootstrap_servers": BROKER, "topic": "other"})  # fmt: skip
    pattern = of_pattern(tmp_path, "pattern", "lake")
    refused = f"{pattern}: shop.a"
    with Running([named, pattern]).until_end() as run:
        until(lambda: refused in run.names)
        until(lambda: run.reasons()[1:] == [f"{refused}: failed: ConfigError"])
        assert run.outcome("shop.a") == "unfinished"
    assert isinstance(run.failure, PipelinesFailed)
    assert run.failure.failed == (refused,)


def test_topic_that_another_file_names_is_not_of_the_pattern(
    broker: Broker, tmp_path: Path
) -> None:
    broker.topics = ["shop.a", "shop.b"]
    source = {"bootstrap_servers": "spare:2,broker:1", "topic": "shop.a"}
    named = write(tmp_path, "special", source=source)
    with Running([named, of_pattern(tmp_path, "pattern", "lake")]).until_end() as run:
        until(lambda: "shop.b" in run.names)
        until(lambda: broker.searches > 3)
        assert [name for name in run.names if "topics" not in name] == ["special", "shop.b"]


def test_client_stops_one_pipeline_also_after_it_has_started_again(
    broker: Broker, tmp_path: Path
) -> None:
    broker.topics = ["shop.a", "shop.b"]
    with Running([of_pattern(tmp_path, "pattern", "lake")]).until_end() as run:
        until(lambda: {"shop.a", "shop.b"} <= {*run.names})
        broker.topics = ["shop.b"]
        until(lambda: run.outcome("shop.a") == "failed")
        status = run.monitors.status.find("shop.a")
        assert status is not None
        assert status.possible_actions() == ()
        broker.topics = ["shop.a", "shop.b"]
        until(lambda: isinstance(run.events["shop.a"][-1], RunStarted), "another start")
        assert status.possible_actions() == (RunAction.PAUSE, RunAction.STOP)
        status.perform(RunAction.STOP)
        until(lambda: run.outcome("shop.a") == "interrupted")
        assert status.possible_actions() == ()
        assert run.outcome("shop.b") == "unfinished"
        names = [one["name"] for one in json.loads(run.monitors.status.to_json(""))["pipelines"]]
        assert {"shop.a", "shop.b"} <= {*names}


@pytest.mark.parametrize("is_missed_by_a_search", [True, False])
def test_pipeline_starts_again_when_its_topic_is_back(
    broker: Broker, tmp_path: Path, is_missed_by_a_search: bool
) -> None:
    broker.topics = ["shop.a", "shop.b"]
    with Running([of_pattern(tmp_path, "pattern", "lake")]).until_end() as run:
        until(lambda: bool(run.events.get("shop.a")))
        with broker.answering_later():  # else a search may find the topic, and then it is gone
            broker.topics = ["shop.b"]
            until(lambda: run.outcome("shop.a") == "failed")
            broker.topics = ["shop.b"] if is_missed_by_a_search else ["shop.a", "shop.b"]
        if is_missed_by_a_search:
            searches = broker.searches
            until(lambda: broker.searches > searches + 1)
        broker.topics = ["shop.a", "shop.b"]
        until(lambda: run.outcome("shop.a") == "unfinished")
        until(lambda: not any("failed" in reason for reason in run.reasons()))
        until(lambda: isinstance(run.events["shop.a"][-1], RunStarted), "another start")
    assert run.failure is None
    kinds = [type(event) for event in run.events["shop.a"]]
    assert kinds == [RunStarted, RunFailed, Retrying, RunStarted, RunStopped]
    assert run.outcome("shop.a") == "interrupted"


def test_broker_may_not_know_a_topic_for_a_while(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_pipeline, "_MISSING_FOR_S", 60.0)
    broker.topics = ["shop.a", "shop.b"]
    never = write(tmp_path, "never")
    with Running([of_pattern(tmp_path, "pattern", "lake"), never]).until_end() as run:
        until(lambda: "shop.a" in run.names)
        broker.topics = ["shop.b"]
        until(lambda: any(isinstance(event, Retrying) for event in run.events["shop.a"]))
        broker.topics = ["shop.a", "shop.b"]
        until(lambda: run.outcome("never") == "failed", "no search has found its topic")
        until(lambda: run.events["shop.a"][-1:] == run.events["shop.a"][:1], "another start")
        assert not [one for one in run.events["shop.a"] if isinstance(one, RunFailed)]


def test_pipeline_whose_broker_was_away_asks_it_before_it_has_a_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = list[str]()

    def ask(*_: object) -> None:
        done.append("ask")
        if len(done) < 5:
            raise BrokerUnreachable(BROKER, "no answer")

    def run(self: JobPipeline) -> None:
        done.append("hold slot")
        if len(done) == 1:
            raise BrokerUnreachable(BROKER, "no answer")
        self._listener(RunStopped("caught up", {}, 0, 0, 0.0))

    monkeypatch.setattr(job_pipeline, "topic_ranges", ask)
    monkeypatch.setattr(JobPipeline, "_run_loop", run)
    retry = {"backoff_s": SOON_S, "max_backoff_s": SOON_S}
    with Running([write(tmp_path, "a", run={"retry": retry})]).until_end() as run_:
        until(lambda: run_.outcome("a") == "caught up")
    assert done == ["hold slot", "ask", "ask", "ask", "ask", "hold slot"]


def test_failed_search_is_seen_and_repeated(broker: Broker, tmp_path: Path) -> None:
    broker.topics = ["shop.a"]
    message = "the client is not authorized"
    broker.failure = Permanent(message)
    file = of_pattern(tmp_path, "pattern", "lake")
    name = rf"{file}: topics shop\..*"
    with Running([file]).until_end() as run:
        until(lambda: run.reasons()[0] == "0 of 0 pipelines are ready" and len(run.reasons()) == 2)
        failing = re.compile(re.escape(name) + r": failing for \d+ s \(Permanent\): attempt")
        until(lambda: failing.match(run.reasons()[1]) is not None)
        broker.failure = None
        until(lambda: run.reasons() == ["1 of 1 pipelines are ready"])
        assert run.events[name][-1:] == [TopicsFound(r"shop\..*", ("shop.a",))]
    assert run.failure is None


def test_search_that_ends_fails_if_no_topic_matches(broker: Broker, tmp_path: Path) -> None:
    broker.topics = ["shops.a", "__consumer_offsets"]
    file = of_pattern(tmp_path, "pattern", "lake", mode="once")
    with Running([file]).until_end() as run:
        run._thread.join(LONG_S)
    assert isinstance(run.failure, PipelinesFailed)
    (failed,) = [one for one in run.job.outcomes if one.has_failed]
    assert failed.error == (
        rf"NoTopicMatches: no topic at {BROKER} matches source.topic_pattern shop\..* (which must "
        "match the whole name); this client may see shops.a; correct the pattern, create a topic "
        "that matches, or check the topics' access rules"
    )


def test_search_that_ends_succeeds_if_another_file_names_the_only_topic(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.topics = ["shop.a"]
    named = write(
        tmp_path,
        "named",
        source={"bootstrap_servers": BROKER, "topic": "shop.a"},
        run={"mode": "once"},
    )
    stopped = RunStopped("caught up", {}, 0, 0, 0.0)
    monkeypatch.setattr(JobPipeline, "_run_loop", lambda self: self._listener(stopped))
    with Running([named, of_pattern(tmp_path, "pattern", "lake", mode="once")]).until_end() as run:
        run._thread.join(LONG_S)
    assert run.failure is None


def test_continuous_search_warns_once_until_a_topic_matches(
    broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Running([of_pattern(tmp_path, "pattern", "lake")]).until_end() as run:
        until(lambda: broker.searches > 2)
        (warning,) = (one.getMessage() for one in caplog.records)
        assert warning.startswith(str(NoTopicMatches(r"shop\..*", BROKER, [])))
        broker.topics = ["shop.a"]
        until(lambda: "shop.a" in run.names)
    assert run.failure is None


def test_exit_of_the_jvm_fails_the_job_unless_it_was_asked_to_stop(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.topics = ["shop.a"]
    for is_asked, expected in ((True, type(None)), (False, JvmEnded)):
        with Running([of_pattern(tmp_path, "pattern", "lake")]).until_end() as run:
            until(lambda run=run: "shop.a" in run.names)  # type: ignore[misc]
            if is_asked:
                run.job.stop()
            monkeypatch.setattr(job_module, "jvm_end", lambda: JvmEnded(137))
            run._thread.join(LONG_S)
        assert isinstance(run.failure, expected)
        monkeypatch.setattr(job_module, "jvm_end", lambda: None)


def test_process_may_open_as_many_files_as_the_system_allows() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, before[1]), before[1]))
    try:
        job_module._allow_many_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
