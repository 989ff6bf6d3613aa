"""Watches the topics of all idle pipelines of a process with one client for each cluster.

A stream asks the broker for new records once per trigger, with a client of its own. Hundreds of
idle streams would cost a core, and a connection each. So the stream of an idle pipeline ends, and
this module asks one question for all of them: the end offsets of their topics.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not among the exported names
    AdminClient,
    OffsetSpec,
)

from checkpoints.checkpoint import KafkaCheckpoint
from streamer.config import settings
from streamer.config.errors import ConfigError
from streamer.config.kafka_source import KafkaSourceConfig
from streamer.sources.librdkafka_settings import ClientSettings, NotTranslatable, client_settings
from streamer.sources.topic_client import ANSWER_WITHIN_S, topic_id_of

#: Seconds between two questions for end offsets.
INTERVAL_S = 1.0

#: The ids and the numbers of partitions change rarely: how often end offsets are read in between.
_POLLS_PER_DESCRIPTION = 10

#: Seconds to wait for an answer; librdkafka gives up earlier.
_RESULT_WITHIN_S = ANSWER_WITHIN_S + 2.0

#: How often a waiting thread checks whether it should give up, in seconds.
_POLL_S = 0.5

#: Seconds without a waiting pipeline after which a client is closed.
_UNUSED_S = 300.0

#: Seconds after which a cluster is asked again after a lasting error.
_RETRY_AFTER_S = 300.0

#: Errors that last: Kafka's Java client, which the stream uses, may have other certificates.
_LASTING = (
    KafkaError._SSL,
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)

_LOG = logging.getLogger(__name__)

_Settings: TypeAlias = ClientSettings


class TopicWatch:
    """The clients that wait for new records: one for each cluster with a waiting pipeline."""

    def __init__(self, interval_s: float = INTERVAL_S) -> None:
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._clusters: dict[object, _Cluster | None] = {}
        self._ending = threading.Event()

    def of(self, source: KafkaSourceConfig) -> WatchedTopic:
        """Return the topic of this source. Its secrets are read at each use, as they may change."""
        return WatchedTopic(self, source)

    def cluster(self, given: _Settings, isolation_level: str) -> _Cluster | None:
        """Return the client with these settings; None if librdkafka does not accept them."""
        key = (frozenset(given.items()), isolation_level)
        with self._lock:
            known = self._clusters.get(key)
            if key not in self._clusters or (known is not None and known.may_be_replaced):
                self._clusters[key] = known = self._open(given, isolation_level)
            return known

    def close(self) -> None:
        """End the threads of this object."""
        self._ending.set()

    def _open(self, given: _Settings, isolation_level: str) -> _Cluster | None:
        try:
            return _Cluster(given, isolation_level, self._interval_s, self._ending)
        except (KafkaException, ValueError):  # librdkafka does not accept a property
            return None


@dataclass(frozen=True)
class WatchedTopic:
    """Waits for new records in a topic. It changes nothing, and commits no offsets.

    Every doubt ends the wait: a topic that cannot be asked, another topic id, other partitions, and
    offsets that are smaller than before. The stream, which then starts, finds the cause.
    """

    _watch: TopicWatch
    _source: KafkaSourceConfig

    @property
    def can_be_watched(self) -> bool:
        """Whether ``wait`` waits.

        False if librdkafka does not support a security property of the source, if a secret cannot
        be found, or if the broker does not accept the connections of librdkafka.
        """
        cluster = self._cluster()
        return cluster is not None and cluster.is_usable

    def wait(self, read_to: KafkaCheckpoint, topic_id: str, gives_up: Callable[[], bool]) -> None:
        """Wait until the topic may have records after ``read_to``.

        Args:
            read_to: the next offset of each partition.
            topic_id: the id of the topic; "" if it is not known.
            gives_up: called about twice a second; returns whether to wait no longer.
        """
        cluster = self._cluster()
        if cluster is None:
            return
        waiter = _Waiter(read_to.topic, topic_id, dict(read_to.offsets))
        with cluster.watching(waiter):
            while cluster.is_usable and not waiter.is_woken.wait(_POLL_S):
                if gives_up():
                    return

    def _cluster(self) -> _Cluster | None:
        given = self._settings
        return None if given is None else self._watch.cluster(given, self._source.isolation_level)

    @cached_property
    def _former(self) -> list[_Settings]:
        """The settings with the secrets that were last read; empty before the first time."""
        return []

    @property
    def _settings(self) -> _Settings | None:
        """The settings with the current secrets; the former ones if a secret cannot be read."""
        source = self._source
        try:
            properties = settings.resolve(source.consumer, "source.consumer")
            self._former[:] = [client_settings(source.bootstrap_servers, properties)]
        except ConfigError:
            pass
        except NotTranslatable:
            return None
        return self._former[0] if self._former else None


@dataclass(frozen=True, slots=True)
class _Shape:
    """The id of a topic, "" if the broker is too old for ids, and its number of partitions."""

    topic_id: str
    partitions: int


@dataclass(frozen=True, eq=False)
class _Waiter:
    """A pipeline that waits for records.

    Attributes:
        topic: the topic.
        topic_id: its id; "" if it is not known.
        offsets: the next offset of each partition.
        is_woken: set when the topic may have new records.
    """

    topic: str
    topic_id: str
    offsets: Mapping[int, int]
    is_woken: threading.Event = field(default_factory=threading.Event)

    def is_at(self, ends: Mapping[int, int]) -> bool:
        """Return whether nothing is unread, and every partition has answered."""
        return all(ends.get(number) == offset for number, offset in self.offsets.items())

    def has_shape(self, found: _Shape | None) -> bool:
        """Return whether the topic is still the same, with the same partitions."""
        if found is None or found.partitions != len(self.offsets):
            return False
        return not (self.topic_id and found.topic_id) or self.topic_id == found.topic_id


class _Cluster:
    """Asks one cluster about all topics for which pipelines wait, in a thread of its own.

    Attributes:
        is_usable: whether the thread runs. When it ends, every wait ends.
    """

    def __init__(
        self,
        given: _Settings,
        isolation_level: str,
        interval_s: float,
        ending: threading.Event,
    ) -> None:
        self._errors: list[KafkaError] = []
        asked: dict[str, Any] = {**given, "error_cb": self._errors.append}
        self._admin = AdminClient(asked)
        self._address = given["bootstrap.servers"]
        self._isolation = IsolationLevel[isolation_level.upper()]
        self._interval_s, self._ending = interval_s, ending
        self._waiters: set[_Waiter] = set()
        self._lock = threading.Lock()
        self._polls = 0
        self._used_at, self._replaced_from = time.monotonic(), 0.0
        self.is_usable = True
        threading.Thread(target=self._run, name="lakemark-topic-watch", daemon=True).start()

    @property
    def may_be_replaced(self) -> bool:
        """Whether the thread has ended, and may be started again."""
        return not self.is_usable and time.monotonic() >= self._replaced_from

    @contextmanager
    def watching(self, waiter: _Waiter) -> Iterator[None]:
        """Wake the waiter until the block ends, if its topic may have new records."""
        with self._lock:
            self._waiters.add(waiter)
        try:
            yield
        finally:
            with self._lock:
                self._waiters.discard(waiter)

    def _run(self) -> None:
        try:
            while self._is_needed() and not self._ending.wait(self._interval_s):
                with self._lock:
                    waiters = list(self._waiters)
                if waiters:
                    self._wake(waiters)
                if (error := self._lasting_error()) is not None:
                    return self._give_up(error.str())
        except Exception as error:
            self._give_up(f"{type(error).__name__}: {error}")
        finally:
            self.is_usable = False
            del self._admin  # closes the connections

    def _is_needed(self) -> bool:
        """Return whether pipelines wait, or did a short while ago."""
        now = time.monotonic()
        with self._lock:
            if self._waiters:
                self._used_at = now
            return now - self._used_at < _UNUSED_S

    def _give_up(self, reason: str) -> None:
        self._replaced_from = time.monotonic() + _RETRY_AFTER_S
        _LOG.warning(
            "cannot watch the topics at %s: %s; idle pipelines of this cluster keep their streams, "
            "and the watch is tried again after %.0f s",
            self._address,
            reason,
            _RETRY_AFTER_S,
        )

    def _wake(self, waiters: Sequence[_Waiter]) -> None:
        try:
            woken: Sequence[_Waiter] = self._find_changed(waiters)
        except (KafkaException, ValueError):  # the streams find the cause
            woken = waiters
        except Exception as error:  # otherwise the pipelines would wait for ever
            _LOG.warning("cannot ask for the ends of topics: %s: %s", type(error).__name__, error)
            woken = waiters
        for waiter in woken:
            waiter.is_woken.set()

    def _find_changed(self, waiters: Sequence[_Waiter]) -> list[_Waiter]:
        """Return the waiters whose topics have new records, or are not the same as before."""
        ends = self._read_ends(waiters)
        changed = [one for one in waiters if not one.is_at(ends.get(one.topic, {}))]
        self._polls += 1
        if self._polls % _POLLS_PER_DESCRIPTION == 0:
            shapes = self._describe(waiters)
            changed += [one for one in waiters if not one.has_shape(shapes.get(one.topic))]
        return changed

    def _read_ends(self, waiters: Sequence[_Waiter]) -> dict[str, dict[int, int]]:
        """Return the end offsets by topic; a partition that does not answer is omitted."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {
            TopicPartition(one.topic, number): latest for one in waiters for number in one.offsets
        }
        futures = self._admin.list_offsets(
            asked, isolation_level=self._isolation, request_timeout=ANSWER_WITHIN_S
        )
        ends: dict[str, dict[int, int]] = {}
        for partition, future in futures.items():
            if (answer := _answer(future)) is not None:
                ends.setdefault(partition.topic, {})[partition.partition] = answer.offset
        return ends

    def _describe(self, waiters: Sequence[_Waiter]) -> dict[str, _Shape]:
        """Return the ids and the numbers of partitions; a topic that is not known is omitted."""
        futures = self._admin.describe_topics(
            TopicCollection(sorted({one.topic for one in waiters})),
            request_timeout=ANSWER_WITHIN_S,
        )
        answers = {topic: _answer(future) for topic, future in futures.items()}
        return {
            topic: _Shape(topic_id_of(found), len(found.partitions))
            for topic, found in answers.items()
            if found is not None
        }

    def _lasting_error(self) -> KafkaError | None:
        self._admin.poll(0)  # calls ``error_cb``
        lasting = [error for error in self._errors if error.code() in _LASTING]
        self._errors.clear()
        return lasting[0] if lasting else None


def _answer(future: Future[Any]) -> Any:
    """Wait for an answer; return None if there is none, or an error."""
    try:
        return future.result(_RESULT_WITHIN_S)
    except (KafkaException, TimeoutError):
        return None
