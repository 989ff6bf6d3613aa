"""Finds the topics that match a pattern, also new ones while the job runs."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Protocol

from pyspark.sql import SparkSession

from streamer.config.topics import matches
from streamer.events import RunStopped, TopicsFound
from streamer.job.member import Member
from streamer.job.outcome import Outcome
from streamer.job.plan import TopicTemplate
from streamer.metrics.server import RunMonitor
from streamer.sources.errors import NoTopicMatches
from streamer.sources.topic_questions import list_topics

_log = logging.getLogger(__name__)


class AddsTopic(Protocol):
    """Adds the pipeline of a topic to a job, or starts it again."""

    def __call__(self, template: TopicTemplate, topic: str, *, is_back: bool) -> None:
        """Add the pipeline, unless there is one.

        Args:
            template: describes the pipeline.
            topic: the topic.
            is_back: whether an earlier search has not found the topic.
        """
        ...


class TopicDiscovery(Member):
    """Adds a pipeline for each topic that matches the pattern of a file.

    With ``run.mode: once``, it searches once, and fails if no topic matches. Otherwise it searches
    every ``source.topic_interval_s``, and a failed search is repeated whatever the error is,
    because nobody else would notice new topics. A warning says that no topic matches yet. The
    pipeline of a topic that disappears fails on its own. When the topic is back, the pipeline
    starts again.

    Args:
        template: describes the pipelines.
        spark: the session, which has the Kafka client that the streams use.
        monitor: monitors the search; its listener receives all events.
        outcome: is updated by the listener of ``monitor``.
        add: adds the pipeline of a topic to the job; called for each topic of each search.
    """

    def __init__(
        self,
        template: TopicTemplate,
        spark: SparkSession,
        monitor: RunMonitor,
        outcome: Outcome,
        add: AddsTopic,
    ) -> None:
        super().__init__(outcome, monitor.listener, template.sample.run)
        self._template, self._spark, self._add = template, spark, add
        self._is_once = template.sample.run.mode == "once"
        self._known, self._present = set[str](), set[str]()
        self._has_succeeded = False
        monitor.watch_wait(lambda: self.waiting_at)

    def _run_once(self) -> None:
        while True:
            self._search()
            if self._is_once:
                return self._listener(RunStopped("caught up", {}, 0, 0, 0.0))
            self._pause(self._template.sample.kafka.topic_interval_s)
            if self._stopping.is_set():
                return self._listener(RunStopped("interrupted", {}, 0, 0, 0.0))

    def _may_pass(self, error: Exception) -> bool:
        self._has_succeeded = False
        return not self._is_once or super()._may_pass(error)

    def _search(self) -> None:
        topics = list_topics(self._spark, self._template.sample.kafka)
        found = sorted(topic for topic in topics if matches(self._template.pattern, topic))
        if not found:
            self._complain(topics)
        self._report(found)
        for topic in found:
            is_back = topic in self._known - self._present
            self._add(self._template, topic, is_back=is_back)
            self._known.add(topic)
            self._present.add(topic)
        self._present = set(found)

    def _complain(self, topics: Collection[str]) -> None:
        """Raise ``NoTopicMatches`` in mode ``once``; otherwise log it at the first search."""
        brokers = self._template.sample.kafka.bootstrap_servers
        error = NoTopicMatches(self._template.pattern, brokers, topics)
        if self._is_once:
            raise error
        if not self._has_succeeded:
            interval_s = self._template.sample.kafka.topic_interval_s
            _log.warning("%s; the search is repeated every %g seconds", error, interval_s)

    def _report(self, found: Collection[str]) -> None:
        new = tuple(topic for topic in found if topic not in self._known)
        if new or not self._has_succeeded:
            self._listener(TopicsFound(self._template.pattern, new))
            self._has_succeeded = True
