"""Creates the metrics of a process. Pipelines that share a process share its metrics, too.

Each metric exists once, and has a label for the pipeline. Prometheus would not accept an answer in
which a metric occurs several times.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

Metric = TypeVar("Metric", Counter, Gauge, Histogram)

_BUCKETS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)

#: The labels of all metrics.
_RUN_LABELS = ("pipeline", "topic")


class MetricFamilies:
    """The metrics of a process.

    Attributes:
        registry: all metrics, with those of the process.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._known: dict[str, Any] = {}
        self._lock = threading.Lock()
        ProcessCollector(registry=self.registry)

    def metric(self, name: str, create: Callable[[str, CollectorRegistry], Metric]) -> Metric:
        """Return the metric with this name.

        Args:
            name: the name without its prefix.
            create: creates the metric in a registry, at the first call.
        """
        with self._lock:
            if name not in self._known:
                self._known[name] = create(f"lakemark_{name}", self.registry)
            known: Metric = self._known[name]
        return known


class MetricFactory:
    """Creates the metrics of one pipeline.

    Attributes:
        run: the values of the labels ``pipeline`` and ``topic``.
    """

    def __init__(self, families: MetricFamilies, pipeline: str, topic: str) -> None:
        self._families = families
        self.run = (pipeline, topic)

    def counter(self, name: str, meaning: str, *labels: str) -> Counter:
        """Return a counter; Prometheus adds ``_total`` to its name."""
        names = (*_RUN_LABELS, *labels)
        return self._families.metric(
            name, lambda full, registry: Counter(full, meaning, names, registry=registry)
        )

    def gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        """Return a gauge."""
        names = (*_RUN_LABELS, *labels)
        return self._families.metric(
            name, lambda full, registry: Gauge(full, meaning, names, registry=registry)
        )

    def seconds(self, name: str, meaning: str, *labels: str) -> Histogram:
        """Return a histogram of durations in seconds."""
        names = (*_RUN_LABELS, *labels)
        return self._families.metric(
            name,
            lambda full, registry: Histogram(
                full, meaning, names, registry=registry, buckets=_BUCKETS_S
            ),
        )

    def one_counter(self, name: str, meaning: str) -> Counter:
        """Return a counter without further labels; it is exported as 0 from the start."""
        return self.counter(name, meaning).labels(*self.run)

    def one_gauge(self, name: str, meaning: str) -> Gauge:
        """Return a gauge without further labels."""
        return self.gauge(name, meaning).labels(*self.run)

    def one_seconds(self, name: str, meaning: str) -> Histogram:
        """Return a histogram without further labels."""
        return self.seconds(name, meaning).labels(*self.run)
