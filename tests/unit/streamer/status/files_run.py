"""A run of a pipeline that reads files, with its endpoint, in a thread of the test."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from streamer import pipeline
from streamer.config.load import validated
from streamer.config.pipeline import PipelineConfig
from streamer.events import BatchWritten, Event, MetricsServed
from streamer.metrics.server import monitor_run
from tests.stream.monitoring import get
from tests.waiting import until

#: A secret of the pipeline file.
SECRET = "hunter2-hunter2"


class FilesRun:
    """A pipeline whose source is a folder.

    Attributes:
        config: its settings.
        events: all events, in order.
        port: the port of its endpoint, once it is served.
    """

    def __init__(
        self,
        folder: Path,
        name: str = "orders",
        *,
        trigger_interval_s: float = 0.0,
        **metrics: object,
    ) -> None:
        self._source = folder / "in"
        self._source.mkdir(parents=True, exist_ok=True)
        self.config: PipelineConfig = validated(
            {
                "name": name,
                "source": {
                    "kind": "files",
                    "path": str(self._source),
                    "format": "json",
                    "poll_interval_s": 0.05,
                },
                "decode": {"schema": {"id": "string", "n": "bigint"}},
                "table": {
                    "path": str(folder / "rows"),
                    "record_key": "id",
                    "buckets": 2,
                },
                "spark": {"conf": {"spark.hadoop.fs.s3a.secret.key": SECRET}},
                "dead_letters": {"max_share": 1.0},
                "metrics": {"port": 0, "poll_interval_s": 0.05, **metrics},
                "run": {"trigger_interval_s": trigger_interval_s},
            }
        )
        self.events, self.port = list[Event](), 0
        self.failure: BaseException | None = None

    def write(self, name: str, *lines: str) -> None:
        """Add a file to the folder."""
        path = self._source / f".{name}"
        path.write_text("\n".join(lines), encoding="utf-8")
        os.rename(path, self._source / name)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run until the block ends."""
        with monitor_run(self.config, self._listen) as monitor:
            paused = monitor.control.paused
            with (
                pipeline.build(self.config, monitor.listener, paused=paused) as built,
                monitor.watch(built),
            ):
                monitor.control.bind_stop(built.loop.stop)
                thread = threading.Thread(target=self._run, args=(built.loop.run,), daemon=True)
                thread.start()
                try:
                    yield
                finally:
                    built.loop.stop()
                    thread.join()
        if self.failure is not None:
            raise self.failure

    def status(self, query: str = "") -> Any:
        """Return the answer of ``/status.json``."""
        code, text = get(self.port, f"/status.json{query}")
        assert code == 200, text
        return json.loads(text)

    def pipeline(self) -> Any:
        """Return the status of the pipeline, with its details."""
        (one,) = self.status()["pipelines"]
        return one

    def wait_for_batches(self, count: int) -> None:
        """Wait until this number of batches was written."""
        until(lambda: len(self.written()) >= count)

    def written(self) -> list[BatchWritten]:
        """Return the batches that were written."""
        return [one for one in self.events if isinstance(one, BatchWritten)]

    def _listen(self, event: Event) -> None:
        if isinstance(event, MetricsServed):
            self.port = event.port
        self.events.append(event)

    def _run(self, run: Any) -> None:
        try:
            run()
        except BaseException as error:
            self.failure = error


def row(key: str, n: int) -> str:
    """Return a line with a row."""
    values: Mapping[str, object] = {"id": key, "n": n}
    return json.dumps(values)
