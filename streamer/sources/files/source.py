"""The files of a folder as a source."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from checkpoints.files_position import FilesPosition, Memory
from checkpoints.position import Position
from lakemark.storage import canonical_url, open_storage
from lakemark.storage.storage import NotFound
from streamer.config.decode import DecodeConfig
from streamer.config.files_source import FilesSourceConfig
from streamer.sources.files.errors import ForeignFolder, UnreadableFile
from streamer.sources.files.file_format import read_pieces
from streamer.sources.files.formats import file_format
from streamer.sources.files.listing import list_files
from streamer.sources.files.planner import FilesPlanner, FilesSettings, sample_values
from streamer.sources.kafka_offsets import LostRange
from streamer.sources.polled_stream import PolledStream
from streamer.sources.source import CheckRead, Source, SourceStart, StreamSettings

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FilesStart:
    """The start of a run; a ``SourceStart``."""

    checkpoint: FilesPosition
    lost: tuple[LostRange, ...] = ()
    topic_id: str = field(default="", init=False)
    needs_commit: bool = field(default=False, init=False)


class FilesSource(Source):
    """Reads the files of a folder in this process, without Spark.

    Args:
        config: the folder, and how to read it.
        decode: how the values are decoded.

    Raises:
        ConfigError: a secret of ``source.storage`` cannot be found.
        InvalidConfig: the options of the store are wrong.
    """

    def __init__(self, config: FilesSourceConfig, decode: DecodeConfig) -> None:
        self._config = config
        self._storage = open_storage(config.location())
        self._folder = canonical_url(config.path).rstrip("/")
        self._format = file_format(config, decode)
        self._changing: set[str] = set()

    def start(self, checkpoint: Position | None, topic_id: str = "") -> FilesStart:
        """See ``Source``. The first run starts after ``source.modified_after``.

        Raises:
            ForeignFolder: the position belongs to another folder, or to another kind of source.
        """
        if checkpoint is None:
            after_ms = self._config.modified_after
            if after_ms is None:
                return FilesStart(FilesPosition(folder=self._folder))
            return FilesStart(FilesPosition.after_time(self._folder, after_ms))
        if not isinstance(checkpoint, FilesPosition):
            raise ForeignFolder(self._folder, str(checkpoint))
        self._check_folder(checkpoint)
        if not checkpoint.folder:
            text = "%s: the table has the position of another program, so only files are read that "
            _LOG.warning(f"{text}were modified at %s or later", self._folder, checkpoint.read_from)
        return FilesStart(checkpoint.in_folder(self._folder))

    def open_stream(
        self, begun: SourceStart, settings: StreamSettings, check_read: CheckRead
    ) -> PolledStream:
        """See ``Source``. The stream lists the folder, and reads the files."""
        position = begun.checkpoint
        assert isinstance(position, FilesPosition), position
        is_once = settings.mode == "once"
        planner = FilesPlanner(
            self._storage,
            self._settings(),
            position,
            check_read,
            lists_once=is_once,
            changing=self._changing,
        )
        return PolledStream(planner.next, planner.close, settings, self._config.poll_interval_s)

    def sample(self, count: int) -> pa.Array:
        """See ``Source``.

        Raises:
            StorageUnavailable: the store does not answer.
        """
        return sample_values(self._values(), count)

    def _check_folder(self, position: FilesPosition) -> None:
        """Check the folder of a position; a position of Apache Hudi contains none."""
        if position.folder not in ("", self._folder):
            raise ForeignFolder(self._folder, str(position))

    def _values(self) -> Iterator[pa.Array]:
        """Yield the values of the files with which the first run begins; skip unreadable files."""
        first = self.start(None).checkpoint
        for file in first.find_unread(list_files(self._storage, self._config.pattern)):
            try:
                for piece in read_pieces(self._storage, self._format, file.path, 0):
                    yield piece.values
            except NotFound:
                continue
            except UnreadableFile as fault:
                _LOG.warning("%s/%s is no example of records: %s", self._folder, file.path, fault)

    def _settings(self) -> FilesSettings:
        config = self._config
        late_us = int(config.late_files_s * 1_000_000)
        return FilesSettings(
            file_format=self._format,
            pattern=config.pattern,
            max_bytes=config.max_bytes_per_batch,
            max_files=config.max_files_per_batch,
            memory=Memory(files=config.remembered_files, late_us=late_us),
            skips_bad_files=config.on_bad_file == "dead_letter",
            reads_changes=config.on_changed_file == "read_again",
        )
