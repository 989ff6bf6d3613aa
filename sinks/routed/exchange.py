"""Collects the batches of a routed stream in the driver, in pieces if they are large."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from checkpoints.checkpoint import KafkaCheckpoint
from lakemark.execution.runner import LocalRunner
from sinks.batch import KafkaBatch
from sinks.hudi.collect import TooLarge, collect
from sinks.hudi.exchange import (
    DriverExchange,
    Exchange,
    OpenWrite,
    PortionResult,
    Prepare,
    ReadBatch,
)


class RoutedExchange:
    """Reads a batch as a whole if its records fit in the budget, otherwise in pieces.

    Args:
        runner: see ``DriverExchange``.
        budget_bytes: the maximum size of a piece.
    """

    def __init__(self, runner: LocalRunner, budget_bytes: int) -> None:
        self._driver, self._budget_bytes = DriverExchange(runner, budget_bytes), budget_bytes

    def run(
        self, batch: KafkaBatch, prepare: Prepare, open_write: OpenWrite
    ) -> list[PortionResult]:
        """See ``DriverExchange.run``. The sink does not call this, because it divides the batch."""
        return self._driver.run(batch, prepare, open_write)

    def read(self, batch: KafkaBatch) -> Exchange[KafkaBatch]:
        """See ``StreamExchange.read``. A batch that does not fit is read by ``read_pieces``."""
        try:
            return self._driver.read(batch)
        except TooLarge:
            return self

    def read_pieces(self, batch: KafkaBatch) -> Iterator[tuple[KafkaBatch, pa.Table]]:
        """Yield parts of a batch that follow one another, each with its records.

        Spark reads the whole batch for each part, because Kafka's connector cannot skip offsets.

        Raises:
            TooLarge: a single record is larger than the budget.
        """
        if batch.planned_records > 1:
            for piece in halves(batch):
                yield from self._read(piece)
        else:
            yield batch, collect(batch, self._budget_bytes)

    def _read(self, batch: KafkaBatch) -> Iterator[tuple[KafkaBatch, pa.Table]]:
        try:
            records = collect(batch, self._budget_bytes)
        except TooLarge:
            yield from self.read_pieces(batch)
        else:
            yield batch, records


def pieces_of(
    batch: KafkaBatch, exchange: Exchange[KafkaBatch]
) -> Iterator[tuple[KafkaBatch, pa.Table]]:
    """Yield the parts of a batch as ``exchange`` has read it: one, unless it was too large."""
    if isinstance(exchange, ReadBatch):
        yield batch, pa.concat_tables(exchange.records)
    else:
        assert isinstance(exchange, RoutedExchange), exchange
        yield from exchange.read_pieces(batch)


def halves(batch: KafkaBatch) -> Iterator[KafkaBatch]:
    """Divide a batch of at least two offsets."""
    spans = batch.spans
    middle = {part: (begin + end) // 2 for part, (begin, end) in spans.items()}
    if all(middle[part] == begin for part, (begin, _) in spans.items()):
        wide = [part for part, (begin, end) in spans.items() if begin < end]
        middle |= {part: spans[part][1] for part in wide[: len(wide) // 2]}
    between = KafkaCheckpoint(batch.end.topic, middle)
    for start, end in ((batch.start, between), (between, batch.end)):
        records = batch.records.where(_within(start, end))
        yield replace(batch, records=records, start=start, end=end)


def _within(start: KafkaCheckpoint, end: KafkaCheckpoint) -> str:
    """Return the condition on the records between two positions, in Spark SQL."""
    begins, ends = (
        " ".join(f"when {part} then {offset}L" for part, offset in one.offsets.items())
        for one in (start, end)
    )
    lower = f"case partition {begins} else 0L end" if begins else "0L"
    return f"offset >= {lower} and offset < case partition {ends} else 0L end"
