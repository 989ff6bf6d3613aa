"""A topic in memory, and a routed pipeline that writes it to real tables, without Spark and Kafka.

The pipeline reads, divides, writes and stores positions as in a run. Only the loop and the source
are replaced: batches come from lists of records.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from checkpoints.checkpoint import KafkaCheckpoint
from lakemark.execution.runner import LocalRunner
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from sinks.audit import OffsetGap
from sinks.batch import BatchResult, KafkaBatch, RoutedBatch
from sinks.hudi.exchange import ReadBatch
from sinks.routed.exchange import RoutedExchange
from sinks.routed.letters import LetterSink
from sinks.routed.position_store import PositionStore
from sinks.routed.sink import RoutedSink
from sinks.routed.tables import TableStart
from streamer.config.metrics import MetricsConfig
from streamer.events import Event, Listener
from streamer.metrics.server import RunMonitors
from streamer.routing.opened_table import OpenedTable
from streamer.routing.opened_tables import OpenedTables
from streamer.routing.run import build_sink
from streamer.routing.template import RouteTemplate
from streamer.sources.errors import LostOffsets
from streamer.sources.kafka_offsets import Fallback, OffsetRange, next_start
from tests.json_stream import RECORDED_AT
from transforms.raw_records import HEADERS, HEADERS_TYPE

TOPIC = "shop"
COLUMNS = {"id": "string", "type": "string", "n": "bigint"}


class Killed(BaseException):
    """The process dies here."""


@dataclass
class Process:
    """Counts what a process does that a crash may interrupt, and dies at one of these points.

    Attributes:
        dies_at: the number of the point; None to live on.
        points: the points that were passed.
    """

    dies_at: int | None = None
    points: list[str] = field(default_factory=list)
    _passing: threading.Lock = field(default_factory=threading.Lock)

    def passes(self, point: str) -> None:
        """Note a point, or die there. Several threads may pass points at the same time."""
        with self._passing:
            number = len(self.points)
            self.points.append(point)
        if number == self.dies_at:
            self.dies_at = None
            raise Killed(point)


@contextmanager
def watched(process: Process) -> Iterator[None]:
    """Until the block ends, pass a point before and after each write of a routed pipeline."""
    with pytest.MonkeyPatch.context() as patch:
        for kind, name in ((PositionStore, "save"), (OpenedTable, "write"), (LetterSink, "write")):
            patch.setattr(kind, name, _watched(process, f"{kind.__name__}.{name}", kind, name))
        yield


def _watched(process: Process, point: str, kind: type[Any], name: str) -> Callable[..., Any]:
    real = getattr(kind, name)

    def call(*arguments: Any) -> Any:
        process.passes(f"before {point}")
        result = real(*arguments)
        process.passes(f"after {point}")
        return result

    return call


@dataclass
class RoutedTopic:
    """The records of a topic, and the pipeline that routes them.

    Attributes:
        folder: contains all tables.
        num_partitions: the number of partitions.
        route: the section ``route``.
        settings: further sections.
        failing: how the writes of tables fail, by name.
        events: the events, each with the name of its pipeline.
        earliest: the first offset that each partition still has.
        topic_id: Kafka's id of the topic.
        fallback: where a table continues that needs lost offsets; None if it is set aside.
        served: the section ``metrics``; with a port, each table has a monitor, but none is served.
        catalogs: the section ``catalogs``.
    """

    folder: Path
    num_partitions: int = 2
    route: Mapping[str, object] = field(default_factory=lambda: {"field": "type"})
    settings: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    failing: dict[str, Exception] = field(default_factory=dict)
    events: list[tuple[str, Event]] = field(default_factory=list)
    earliest: dict[int, int] = field(default_factory=dict)
    topic_id: str = "first"
    fallback: Fallback | None = None
    served: MetricsConfig = field(default_factory=MetricsConfig)
    catalogs: Sequence[Mapping[str, object]] = ()

    def __post_init__(self) -> None:
        self.partitions: list[list[tuple[bytes | None, str | None]]] = [
            [] for _ in range(self.num_partitions)
        ]

    def send(self, *values: Mapping[str, object] | bytes | None, header: str | None = None) -> None:
        """Send records, to the partitions in turn."""
        for value in values:
            encoded = json.dumps(value).encode() if isinstance(value, Mapping) else value
            number = sum(map(len, self.partitions)) % self.num_partitions
            self.partitions[number].append((encoded, header))

    def template(self) -> RouteTemplate:
        """Return the pipeline."""
        return RouteTemplate.of(self.sections())

    def sections(self) -> dict[str, object]:
        """Return the sections of the pipeline file."""
        sections: dict[str, Any] = {
            "source": {"bootstrap_servers": "localhost:1", "topic": TOPIC},
            "route": dict(self.route),
            "decode": {"schema": COLUMNS},
            "table": {
                "path": f"{self.folder}/{{value}}",
                "record_key": "id",
                "operation": "insert",
                "metadata_table": False,
            },
            "dead_letters": {"max_share": 1.0},
            "run": {"mode": "once", "retry": {"backoff_s": 0.0, "max_backoff_s": 0.0}},
        }
        for section, settings in self.settings.items():
            sections[section] = {**sections.get(section, {}), **settings}
        return {**sections, "catalogs": [*self.catalogs]}

    def open(self) -> RoutedSink:
        """Return the sink of a new process."""
        template = self.template()

        def output(name: str) -> Listener:
            return lambda event: self.events.append((name, event))

        self.monitors = RunMonitors(self.served, str)
        self.tables = OpenedTables(template, self.monitors, output, lambda: 0.0)
        return build_sink(template, self.tables, output(template.sample.name), self._find_start, 1)

    def run(self, sink: RoutedSink | None = None, batch_size: int = 1_000) -> RoutedSink:
        """Read the topic to its end, as the loop of a run of mode ``once`` does."""
        sink = sink or self.open()
        with self._failing_tables():
            while True:
                self._stream(sink, batch_size)
                if sink.restart_due_in_s is None:
                    return sink

    def rows(self, table: str, column: str = "id") -> list[Any]:
        """Return the sorted values of a column of a table; none if there is no table."""
        if not (self.folder / table / ".hoodie" / "hoodie.properties").exists():
            return []
        opened = open_table(StorageLocation(str(self.folder / table)))
        if opened.schema is None:
            return []
        return sorted(opened.scan(columns=[column]).to_reader().read_all()[column].to_pylist())

    def letters(self) -> Counter[str]:
        """Return the codes of the dead letters of records without a table."""
        return Counter(self.rows(f"{TOPIC}_dead_letters", "code"))

    def _stream(self, sink: RoutedSink, batch_size: int) -> None:
        sink.recover()
        progress = sink.progress()
        nothing = KafkaCheckpoint(TOPIC, {})
        checkpoint = nothing if progress is None else cast(KafkaCheckpoint, progress.checkpoint)
        begun = next_start(checkpoint, self._available())
        if progress is not None and begun.lost:
            raise LostOffsets(TOPIC, begun.lost)
        position = begun.checkpoint
        while position.offsets != self._end() and sink.restart_due_in_s != 0:
            batch = self.batch(position, batch_size)
            self.write(sink, batch)
            position = batch.end

    def write_in_pieces(self, sink: RoutedSink, pieces: Sequence[KafkaBatch]) -> BatchResult:
        """Write the batch that these pieces make, as if it were too large to be read at once."""
        whole = replace(pieces[0], end=pieces[-1].end)
        return sink.write(whole, _Pieces(pieces))

    def write(self, sink: RoutedSink, batch: KafkaBatch) -> BatchResult:
        """Write one batch."""
        records = cast(pa.Table, batch.records)
        return sink.write(batch, ReadBatch([records], LocalRunner(1)))

    def batch(self, start: KafkaCheckpoint, size: int) -> KafkaBatch:
        """Return the next batch."""
        ends = {p: min(begin + size, self._end()[p]) for p, begin in start.offsets.items()}
        rows = [
            (value, partition, offset, RECORDED_AT, _headers(header))
            for partition, end in ends.items()
            for offset in range(start.offsets[partition], end)
            for value, header in [self.partitions[partition][offset]]
        ]
        columns = [*zip(*rows, strict=True)]
        records = pa.table(
            {
                "value": pa.array(columns[0], pa.binary()),
                "key": pa.nulls(len(rows), pa.binary()),
                "partition": pa.array(columns[1], pa.int32()),
                "offset": pa.array(columns[2], pa.int64()),
                "timestamp": pa.array(columns[3], pa.timestamp("us", "UTC")),
                HEADERS: pa.array(columns[4], HEADERS_TYPE),
            }
        )
        return KafkaBatch(
            records=cast(Any, records),
            start=start,
            end=KafkaCheckpoint(TOPIC, ends),
            topic_id=self.topic_id,
            check_source=_no_gaps,
        )

    def _end(self) -> Mapping[int, int]:
        return {number: len(some) for number, some in enumerate(self.partitions)}

    def _available(self) -> Mapping[int, OffsetRange]:
        return {p: OffsetRange(self.earliest.get(p, 0), end) for p, end in self._end().items()}

    def _find_start(self, position: KafkaCheckpoint, topic_id: str) -> TableStart:
        begun = next_start(position, self._available(), self.fallback or "earliest")
        if begun.lost and self.fallback is None:
            raise LostOffsets(TOPIC, begun.lost)
        return TableStart(begun.checkpoint, [one.facts(TOPIC) for one in begun.lost])

    @contextmanager
    def _failing_tables(self) -> Iterator[None]:
        real, failing = OpenedTable.write, self.failing

        def write(table: OpenedTable, batch: RoutedBatch, threads: int) -> BatchResult:
            error = failing.get(table.name.rpartition("/")[2])
            if error is not None:
                raise error
            return real(table, batch, threads)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(OpenedTable, "write", write)
            yield


class _Pieces(RoutedExchange):
    """Yields the pieces of a batch, which were read before."""

    def __init__(self, pieces: Sequence[KafkaBatch]) -> None:
        super().__init__(LocalRunner(1), budget_bytes=0)
        self._pieces = pieces

    def read_pieces(self, batch: KafkaBatch) -> Iterator[tuple[KafkaBatch, pa.Table]]:
        for piece in self._pieces:
            yield piece, cast(pa.Table, piece.records)


def _no_gaps(gaps: Sequence[OffsetGap]) -> Sequence[Mapping[str, object]]:
    assert not gaps, gaps
    return ()


def _headers(text: str | None) -> list[dict[str, object]]:
    return [] if text is None else [{"key": "table", "value": text.encode()}]
