"""The engines of the ingest benchmark, and which workloads they can run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from benchmarks.engines import Engine
from benchmarks.workloads.workload import Workload

LAKEMARK = "lakemark"
#: Reads the topic like the others, and writes nothing.
FLOOR = "floor"


class Reader(Enum):
    """The program that reads a table to compare its contents."""

    NOTHING_TO_READ = auto()
    APACHE_HUDI = auto()
    ITSELF = auto()


@dataclass(frozen=True, slots=True)
class IngestEngine:
    """A program that writes a topic to a table.

    Attributes:
        title: its name in a plot.
        engine: the program.
        reader: the program that reads its table.
        most_records: the largest workload that it runs.
    """

    title: str
    engine: Engine
    reader: Reader = Reader.APACHE_HUDI
    most_records: int | None = None

    def refusal(self, workload: Workload) -> str | None:
        """Return why it does not run a workload; None if it does."""
        if self.most_records is None or workload.records <= self.most_records:
            return None
        return f"runs at most {self.most_records:,} records"


_STREAM, _SINK = "benchmarks.peers.lakemark_stream", "benchmarks.peers.hudi_streaming_sink"
_MERGE = "benchmarks.peers.merge_stream"
#: Neither compacts by itself, so a MERGE takes longer with each batch.
_MOST_MERGED = 1_000_000


def _lakemark(title: str, *settings: str, on_spark35: bool = False) -> IngestEngine:
    flags = tuple(part for setting in settings for part in ("--set", setting))
    return IngestEngine(title, Engine(_STREAM, flags, on_spark35=on_spark35))


def _hudi(title: str, *flags: str) -> IngestEngine:
    return IngestEngine(title, Engine(_SINK, flags))


def _merge(title: str, table_format: str) -> IngestEngine:
    engine = Engine(_MERGE, ("--format", table_format), on_spark35=False)
    return IngestEngine(title, engine, Reader.ITSELF, _MOST_MERGED)


_FLOOR = Engine("benchmarks.peers.floor", on_spark35=False)

ENGINES = {
    FLOOR: IngestEngine("only reading the topic", _FLOOR, Reader.NOTHING_TO_READ),
    LAKEMARK: _lakemark("lakemark"),
    "lakemark_on_spark35": _lakemark("lakemark on Spark 3.5", on_spark35=True),
    "lakemark_without_metadata": _lakemark(
        "lakemark, no metadata table", "table.metadata_table=false"
    ),
    "lakemark_without_read_ahead": _lakemark("lakemark, no read-ahead", "run.read_ahead=false"),
    "hudi": _hudi("Apache Hudi 1.2.0"),
    "hudi_without_metadata": _hudi("Hudi, no metadata table", "--no-metadata-table"),
    "delta": _merge("Delta Lake 4.0, MERGE", "delta"),
    "iceberg": _merge("Iceberg 1.10, MERGE", "iceberg"),
}
