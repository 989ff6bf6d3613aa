"""``source`` of files: the folder, the format of its files, and the size of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from lakemark.storage import canonical_url
from lakemark.storage.storage import StorageLocation
from streamer.config import settings
from streamer.config.any_source import AnySource
from streamer.config.decode import DecodeConfig
from streamer.config.errors import Problem
from streamer.config.kafka_source import epoch_ms
from streamer.config.run import DeadLettersConfig
from streamer.config.section import Location, Section
from streamer.config.settings import Settings
from streamer.config.table import TableConfig
from streamer.config.table_source import TableSourceConfig

#: The formats of files, and the formats in which their values are decoded. None means any format of
#: values that are bytes.
DECODED_AS = {"json": None, "csv": "csv", "parquet": "columns", "avro": "columns"}

#: Values of Kafka that are no lines of text: they are binary, or begin with the id of their schema.
_NOT_LINES = ("csv", "columns", "avro", "protobuf", "json_schema")

#: Files and folders that begin so are ignored (``DFSPathSelector`` of Apache Hudi).
_HIDDEN = (".", "_")


class FolderConfig(Section):
    """A folder of files, and the size of a batch."""

    path: Location
    """The path or URL of the folder, in the forms of ``table.path``. Files and folders whose names
    begin with ``.`` or ``_`` are ignored."""

    storage: Settings
    """Options of the storage client, as in ``table.storage``."""

    format: Literal["json", "csv", "parquet", "avro"]
    """``json``: each line is one value, which ``decode`` describes. ``csv``: each line is one row,
    as in ``decode.format: csv``; a line break in quotation marks does not end it. ``parquet`` and
    ``avro`` (object container files) have columns. Files of lines whose names end in ``.gz`` are
    decompressed."""

    pattern: Annotated[str, Field(min_length=1)] = "*"
    """Only files whose paths below the folder match this pattern are read, such as
    ``2026/*.parquet``. ``*`` also matches ``/``."""

    header: bool = False
    """Whether the first line of each CSV file names its columns. It must name the columns of
    ``decode.schema``, in the same order."""

    max_bytes_per_batch: Annotated[int, Field(ge=1 << 10, le=512 << 20)] = 128 << 20
    """About how many bytes of records one commit may have in memory. A larger file is divided among
    several commits."""

    max_files_per_batch: Annotated[int, Field(ge=1, le=100_000)] = 1_000
    """The largest number of files that one commit may read."""


class FilesSourceConfig(FolderConfig, AnySource):
    """The files of a folder, and of all folders in it.

    The first run reads all files, and later runs read the new ones. See
    [Sources](sources.md#files).
    """

    kind: Literal["files"]
    """The kind of source."""

    modified_after: Annotated[int, BeforeValidator(epoch_ms)] | None = None
    """The first run ignores files that were not modified after this time (ISO 8601 with a zone, or
    milliseconds since 1970)."""

    poll_interval_s: Annotated[float, Field(gt=0, le=86_400)] = 10.0
    """Seconds until the folder is listed again, if there is nothing to read."""

    on_bad_file: Literal["dead_letter", "fail"] = "dead_letter"
    """What happens to a file that cannot be read as ``format`` says, for example because it is
    truncated. ``dead_letter`` adds one dead letter for the rest of the file and continues with the
    next file. ``fail`` stops the run. In both cases, single records that do not fit go to the dead
    letters."""

    on_changed_file: Literal["read_again", "fail"] = "read_again"
    """What happens if a file was changed after it was read. ``read_again`` reads the new version
    completely, and logs a warning. ``fail`` stops the run."""

    late_files_s: Annotated[float, Field(ge=0, le=30 * 86_400)] = 3_600.0
    """For how many seconds a file may appear late: after the run has read files that were modified
    later. Commits list the files that were read in this time."""

    remembered_files: Annotated[int, Field(ge=0, le=10_000)] = 1_000
    """The largest number of files that a commit lists. If more files are read in ``late_files_s``,
    files must not appear so late: only the newest of the files that were read are listed."""

    @property
    def origin(self) -> str:
        """See ``AnySource``."""
        return self.path

    def location(self) -> StorageLocation:
        """Return the location of the folder, with the secrets of the store.

        Raises:
            ConfigError: a secret cannot be found.
        """
        return StorageLocation(self.path, settings.resolve(self.storage, "source.storage"))

    def unresolved(self) -> list[Problem]:
        """See ``AnySource``."""
        return settings.unresolved(self.storage, "source.storage")


def files_problems(source: AnySource, decode: DecodeConfig, kind: str) -> Iterator[Problem]:
    """Yield a problem for each setting of files that does not fit the format of the values.

    Args:
        source: the source, of any kind.
        decode: how its values are decoded.
        kind: ``decode.format``.
    """
    if not isinstance(source, FilesSourceConfig):
        if kind == "columns" and not isinstance(source, TableSourceConfig):
            text = "columns is only for tables and for files of Parquet or Avro; choose the format "
            yield Problem("decode.format", text + "of the values")
        return
    wanted = DECODED_AS[source.format]
    fits = kind == wanted if wanted else kind not in _NOT_LINES
    if not fits:
        text = f"{kind} does not fit source.format {source.format}"
        yield Problem("decode.format", f"{text}; " + (f"use {wanted}" if wanted else "use json"))
    if source.header and source.format != "csv":
        yield Problem("source.header", f"has no effect with format {source.format}; remove it")
    if source.header and decode.declared_names is None:
        yield Problem("decode.schema", "must declare the columns that source.header names")


def own_files_problems(
    source: AnySource, table: TableConfig, dead_letters: DeadLettersConfig
) -> Iterator[Problem]:
    """Yield a problem if a run would read the files of the tables that it writes.

    Args:
        source: the source, of any kind.
        table: the table that is written.
        dead_letters: the dead letters, which are another table.
    """
    if not isinstance(source, FilesSourceConfig):
        return
    folder = canonical_url(source.path).rstrip("/")
    written = {"table.path": table.path, "dead_letters.path": dead_letters.path}
    for name, path in written.items():
        url = canonical_url(path).rstrip("/") if path else ""
        if not f"{url}/".startswith(f"{folder}/"):
            continue
        example = f"{url}/0.parquet".removeprefix(f"{folder}/")
        if is_read(example, source.pattern):
            text = (
                f"contains {name}, {path}, whose files would be read, too; read another folder, or "
                "set source.pattern to a pattern of the paths of the files, such as "
                f"in/*.{source.format}"
            )
            yield Problem("source.path", text)
            return


def is_read(path: str, pattern: str) -> bool:
    """Return whether a file is one of the source.

    Args:
        path: the path of the file in the folder.
        pattern: ``source.pattern``.
    """
    is_hidden = any(part.startswith(_HIDDEN) for part in path.split("/"))
    return fnmatchcase(path, pattern) and not is_hidden
