"""``snapshot``: an export of the table, which is read before the topic."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from lakemark.config.table_properties import MergeMode
from streamer.config import settings
from streamer.config.columns import ColumnsDecodeConfig
from streamer.config.decode import DecodeConfig, JsonDecodeConfig
from streamer.config.errors import Problem
from streamer.config.files_source import FilesSourceConfig, FolderConfig
from streamer.config.kafka_source import KafkaSourceConfig
from streamer.config.plain_values import CsvDecodeConfig
from streamer.config.section import Section
from streamer.config.settings import Settings
from streamer.config.table import TableConfig
from streamer.config.table_source import StoredTableConfig, TableSourceConfig
from streamer.config.transform import Steps, unresolved_secrets

#: How the records of a snapshot can be decoded.
AnySnapshotDecode: TypeAlias = Annotated[
    JsonDecodeConfig | CsvDecodeConfig | ColumnsDecodeConfig, Field(discriminator="format")
]

#: The name of each section of the pipeline that reads the snapshot (``PipelineConfig.of_snapshot``)
#: in the pipeline file.
_SECTIONS = {"source": "snapshot", "decode": "snapshot.decode"}

#: Settings that name columns which only the records of the topic may have.
_COLUMNS = ("table.ordering", "table.partition_by")

_SETTING = re.compile(r"\b(source|decode)\.(?=[a-z])")


class SnapshotConfig(Section, ABC):
    """Settings of snapshots of all kinds."""

    storage: Settings
    """Options of the storage client, as in ``table.storage``."""

    decode: AnySnapshotDecode = ColumnsDecodeConfig(format="columns")
    """How the records of the snapshot become columns, as in the section ``decode``. The format is
    ``columns`` for Parquet, Avro and tables, ``csv`` for CSV, and ``json`` by default for JSON.
    Default: the columns of ``decode.schema``, if they are declared there."""

    transform: Steps | None = None
    """The steps for the records of the snapshot, as in the section ``transform``; ``[]`` for no
    steps. Default: the steps of ``transform``, so that both kinds of records need the same columns
    before the steps."""

    @abstractmethod
    def source(self, checkpoint_id: str) -> FilesSourceConfig | TableSourceConfig:
        """Return the section ``source`` of a pipeline that reads only the snapshot.

        Args:
            checkpoint_id: the name under which the table stores the position of the pipeline.
        """

    def unresolved(self) -> Iterator[Problem]:
        """Yield a problem for each secret that this machine cannot find."""
        yield from settings.unresolved(self.storage, "snapshot.storage")
        for one in unresolved_secrets(self.transform or ()):
            yield Problem(f"snapshot.{one.path}", one.message)

    def decode_with(self, topic: DecodeConfig) -> AnySnapshotDecode:
        """Return ``decode`` with the columns that are declared for the topic, if it has none.

        Columns that only events have are not among them.
        """
        if self.decode.columns != "infer":
            return self.decode
        return self.decode.model_copy(update={"columns": topic.columns})


class FilesSnapshotConfig(SnapshotConfig, FolderConfig):
    """An export of the table as files, which is read before the topic.

    The first run writes its rows to the table, and then reads the topic from the offsets that
    ``source.starting_offsets`` named at its start. Later runs only read the topic. See
    [Snapshot](sources.md#a-snapshot-and-then-the-topic).
    """

    kind: Literal["files"] = "files"
    """The kind of snapshot."""

    on_bad_file: Literal["fail", "dead_letter"] = "fail"
    """What happens to a file that cannot be read as ``format`` says. ``fail`` refuses the snapshot
    before anything is written if the start of a file, or the footer of a Parquet file, is damaged,
    and stops the run at other damage. ``dead_letter`` adds one dead letter for the rest of the
    file. Once the topic is read, the file is not read again."""

    def source(self, checkpoint_id: str) -> FilesSourceConfig:
        """See ``SnapshotConfig``.

        Files of an export are complete when the run starts. So no commit has to list the files that
        were read, in case that others appear late.
        """
        folder = {name: getattr(self, name) for name in FolderConfig.model_fields}
        return FilesSourceConfig.model_construct(
            **folder,
            kind="files",
            checkpoint_id=checkpoint_id,
            on_bad_file=self.on_bad_file,
            late_files_s=0.0,
            remembered_files=0,
        )


class TableSnapshotConfig(SnapshotConfig, StoredTableConfig):
    """The rows of another table in the Apache Hudi format, which are read before the topic.

    They are read as of the newest commit at the start of the first run. Its later commits are not
    read. The table must have Hudi's meta columns.
    """

    kind: Literal["table"]
    """The kind of snapshot."""

    def source(self, checkpoint_id: str) -> TableSourceConfig:
        """See ``SnapshotConfig``."""
        table = {name: getattr(self, name) for name in StoredTableConfig.model_fields}
        return TableSourceConfig.model_construct(
            **table, kind="table", checkpoint_id=checkpoint_id, query="incremental"
        )


#: The section ``snapshot`` of one of the kinds.
AnySnapshotConfig: TypeAlias = Annotated[
    FilesSnapshotConfig | TableSnapshotConfig, Field(discriminator="kind")
]


def in_snapshot(problem: Problem, *, has_own_steps: bool) -> Problem:
    """Return a problem of the pipeline that reads the snapshot, with the names of its settings.

    Args:
        problem: the problem.
        has_own_steps: whether ``snapshot.transform`` is given.
    """
    section, dot, rest = problem.path.partition(".")
    message = _SETTING.sub(lambda found: f"{_SECTIONS[found[1]]}.", problem.message)
    if section in _SECTIONS:
        return Problem(f"{_SECTIONS[section]}{dot}{rest}", message)
    if section == "transform" and has_own_steps:
        return Problem(f"snapshot.{problem.path}", message)
    is_missing = problem.path in _COLUMNS and "is not a column" in problem.message
    remedy = "; a step of snapshot.transform can add it" if is_missing else ""
    return Problem(problem.path, f"for the rows of snapshot: {message}{remedy}")


def with_kind(given: object) -> object:
    """Return the section with the default kind, files."""
    return {"kind": "files", **given} if isinstance(given, Mapping) else given


def snapshot_warnings(source: KafkaSourceConfig, table: TableConfig) -> list[str]:
    """Return what the user must know about the records of a topic that follows a snapshot."""
    if source.starting_offsets == "latest":
        return [
            "source.starting_offsets is latest, so no record is read that reached the topic before "
            "the first start of this pipeline. If the snapshot may lack changes from before that "
            "time, name the time at which its export began: source.starting_offsets: {timestamp: "
            "TIME}"
        ]
    begins = "the topic is read from source.starting_offsets on; "
    if table.inserts:
        if table.duplicates == "drop":
            return []
        return [
            f"{begins}with table.operation insert, a record that the snapshot also contains is "
            "inserted again. Name the offsets at which the export ended, or set table.duplicates: "
            "drop"
        ]
    if table.merge_request().resolve().mode is not MergeMode.COMMIT_TIME:
        return []
    return [
        f"{begins}without table.ordering, a record that is older than the snapshot replaces its "
        "row until the newer records of the topic are read. Set table.ordering to the columns that "
        "order the versions of a row"
    ]
