"""One table of a routed pipeline: its sink, its table services and its events."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from checkpoints.position import Position
from checkpoints.progress import Progress
from lakemark.execution.runner import LocalRunner, Result, Task
from lakemark.transaction.conflicts import ReplacementPending
from sinks.batch import BatchResult, RoutedBatch
from sinks.hudi.exchange import MemoryExchange
from sinks.hudi.sink import HudiSink
from streamer.batch_events import batch_written, report_batch
from streamer.config.pipeline import PipelineConfig
from streamer.events import (
    BatchPlanned,
    ChecksViolated,
    Listener,
    RulesViolated,
    RunStarted,
    ServiceCompleted,
)
from streamer.services import TableServices
from streamer.working_for import working_for
from transforms.batch_checks import BatchCheckFailed
from transforms.violations import ExpectationFailed


class RunnerOfTable:
    """Runs the tasks of one table, in as many threads as the table may use now.

    Other tables use the other cores meanwhile.
    """

    def __init__(self) -> None:
        self._local = LocalRunner()

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        """See ``Runner.map``."""
        return self._local.map(function, tasks)

    def use(self, threads: int) -> None:
        """Use this number of threads from now on."""
        self._local = LocalRunner(threads)


class OpenedTable:
    """Writes the records of one table, as the loop of a pipeline of its own would.

    Args:
        config: the pipeline of the table.
        sink: writes to the table, and to its dead letters.
        services: the services of both.
        runner: runs the tasks of the services, in as many threads as write the batch before them.
        listener: receives the events of the table.
        after_commit: called after each commit and its services.
    """

    def __init__(
        self,
        config: PipelineConfig,
        sink: HudiSink,
        services: TableServices,
        runner: RunnerOfTable,
        listener: Listener,
        after_commit: Callable[[], None],
    ) -> None:
        self._config, self._sink, self.services = config, sink, services
        self._runner, self._listener, self._after_commit = runner, listener, after_commit
        self._num_batches = self.rows_written = 0
        self._refused = ""
        self._is_announced = False

    @property
    def is_created(self) -> bool:
        """See ``RoutedTable``."""
        return True

    def recover(self) -> Progress | None:
        """See ``RoutedTable``. The due services run, too."""
        began = time.monotonic()
        with working_for(self._config.name):
            rolled_back = self._sink.recover()
            if rolled_back:
                seconds = time.monotonic() - began
                self._listener(ServiceCompleted("rollback", ", ".join(rolled_back), seconds))
            self.services.run(self._refused)
            self._refused = ""
            progress = self._sink.progress()
            self._announce(None if progress is None else progress.checkpoint)
            return progress

    def note_failure(self) -> None:
        """Announce the next start of the table, because it has failed."""
        self._is_announced = False

    def write(self, batch: RoutedBatch, threads: int) -> BatchResult:
        """See ``RoutedTable``. The due services run after the commit."""
        with working_for(self._config.name):
            began, batch_id = time.monotonic(), self._num_batches
            records = sum(table.num_rows for table in batch.tables)
            self._listener(BatchPlanned(batch_id, {}, records))
            self._runner.use(threads)
            result = self._commit(batch, batch_id, threads)
            self._num_batches += 1
            self.rows_written += result.rows
            seconds = time.monotonic() - began
            written = batch_written(batch_id, result, seconds, result.seconds, {})
            report_batch(self._listener, written, result, self._sink.dead_letters)
            self.services.run()
            self._after_commit()
            return result

    @property
    def name(self) -> str:
        """The name of the pipeline of the table."""
        return self._config.name

    @property
    def num_batches(self) -> int:
        """The number of committed batches."""
        return self._num_batches

    def _announce(self, position: Position | None) -> None:
        """Emit ``RunStarted``, unless the table only goes on after a pause of the stream."""
        if self._is_announced:
            return
        offsets = {} if position is None else dict(position.offsets_by_partition)
        self._listener(
            RunStarted(
                self._config.name,
                self._config.source.origin,
                self._sink.url,
                offsets,
                position is not None,
                "" if position is None else position.summary,
            )
        )
        self._is_announced = True

    def _commit(self, batch: RoutedBatch, batch_id: int, threads: int) -> BatchResult:
        exchange = MemoryExchange(LocalRunner(threads)).read(batch)
        try:
            return self._sink.write(batch, exchange)
        except ExpectationFailed as failed:
            self._listener(RulesViolated(batch_id, failed.violations))
            raise
        except BatchCheckFailed as failed:
            self._listener(ChecksViolated(batch_id, failed.violations))
            raise
        except ReplacementPending as refusal:
            self._refused = refusal.planned.requested_at
            raise


class RoutedServices:
    """The services of all tables, as one; each table runs its own after its commits.

    Args:
        services: returns those of the tables that are open now.
    """

    def __init__(self, services: Callable[[], Sequence[TableServices]]) -> None:
        self._services = services
        self.mutex = threading.Lock()

    @property
    def has_requests(self) -> bool:
        """False: the services of a routed pipeline cannot be requested."""
        return False

    @property
    def in_progress(self) -> str:
        """See ``StreamServices``."""
        return next((one.in_progress for one in self._services() if one.in_progress), "")

    def check(self) -> None:
        """See ``StreamServices``. No asynchronous service of a routed pipeline ends the run."""

    def end(self, within_s: float) -> bool:
        """See ``StreamServices``."""
        ends_at, is_running = time.monotonic() + within_s, False
        for one in self._services():  # each is asked to end, whatever the others do
            is_running |= one.end(max(0.0, ends_at - time.monotonic()))
        return is_running

    def run(self, refused: str = "") -> None:
        """See ``StreamServices``."""

    def wait(self, stopping: threading.Event) -> None:
        """See ``StreamServices``."""
