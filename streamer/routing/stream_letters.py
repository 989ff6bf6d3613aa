"""The dead letters of records for which a routed pipeline has no table to write to."""

from __future__ import annotations

import pyarrow as pa

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.progress import Progress
from sinks.routed.letters import LetterSink
from streamer import pipeline
from streamer.config.pipeline import PipelineConfig
from streamer.events import Listener
from streamer.services import TableServices
from transforms.rejects import Rejects


class StreamLetters:
    """Writes the dead letters of a pipeline without its table. Implements ``UnroutedLetters``.

    Args:
        config: a pipeline with this dead-letter table.
        listener: receives the events of its services.
    """

    def __init__(self, config: PipelineConfig, listener: Listener) -> None:
        self._config, self._listener = config, listener
        self._sink: LetterSink | None = None
        self._services: TableServices | None = None

    @property
    def url(self) -> str:
        """See ``UnroutedLetters``."""
        return self._config.dead_letters.path if self._config.dead_letters.enabled else ""

    def recover(self) -> Progress | None:
        """See ``UnroutedLetters``."""
        if not self.url:
            return None
        sink = self._sink or self._open(creates=False)
        return None if sink is None else sink.recover()[1]

    def write(
        self, rejects: Rejects, start: KafkaCheckpoint, end: KafkaCheckpoint, topic_id: str
    ) -> pa.Table:
        """See ``UnroutedLetters``."""
        if self._sink is None:
            self._sink = self._open(creates=True)
            assert self._sink is not None
            self._sink.recover()
        changes = self._sink.write(rejects, start, end, topic_id)
        if self._services is not None:
            self._services.run()
        return changes

    def _open(self, *, creates: bool) -> LetterSink | None:
        writer = pipeline.open_letters(self._config, creates=creates)
        if writer is None:
            return None
        self._services = pipeline.letter_services(self._config, writer, self._listener)
        self._sink = LetterSink(writer, self._config.source.checkpoint_id)
        return self._sink
