"""Prometheus metrics as this project names and labels them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

#: Values that one label may have, of those that no configuration names.
_MOST_VALUES = 32

_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class Families:
    """Makes metrics of one run; all of them carry its pipeline and its topic.

    Attributes:
        registry: holds them.
        run: the values of the labels ``pipeline`` and ``topic``.
    """

    def __init__(self, pipeline: str, topic: str) -> None:
        self.registry = CollectorRegistry()
        self.run = (pipeline, topic)

    def counter(self, name: str, meaning: str, *labels: str) -> Counter:
        """What only grows; Prometheus adds ``_total`` to its name."""
        return Counter(f"lakemark_{name}", meaning, self._labels(labels), registry=self.registry)

    def gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        """What is so now."""
        return Gauge(f"lakemark_{name}", meaning, self._labels(labels), registry=self.registry)

    def seconds(self, name: str, meaning: str, *labels: str) -> Histogram:
        """How long something takes, in seconds."""
        names = self._labels(labels)
        return Histogram(
            f"lakemark_{name}", meaning, names, registry=self.registry, buckets=_SECONDS
        )

    def one_counter(self, name: str, meaning: str) -> Counter:
        """The same without labels of its own; it is there, as 0, before anything happened."""
        return self.counter(name, meaning).labels(*self.run)

    def one_gauge(self, name: str, meaning: str) -> Gauge:
        """A gauge without labels of its own."""
        return self.gauge(name, meaning).labels(*self.run)

    def one_seconds(self, name: str, meaning: str) -> Histogram:
        """A histogram without labels of its own."""
        return self.seconds(name, meaning).labels(*self.run)

    def _labels(self, own: tuple[str, ...]) -> tuple[str, ...]:
        return ("pipeline", "topic", *own)


class BoundedLabel:
    """Values of a label that code names, such as types of errors; from the 33rd on ``other``."""

    def __init__(self, at_most: int = _MOST_VALUES) -> None:
        self._at_most = at_most
        self._known: set[str] = set()

    def __call__(self, value: str) -> str:
        """The value that the label gets."""
        if value in self._known or len(self._known) < self._at_most:
            self._known.add(value)
            return value
        return "other"
