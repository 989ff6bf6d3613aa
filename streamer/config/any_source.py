"""What the ``source`` sections of all kinds of sources have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Literal

import pyarrow as pa
from pydantic import Field

from checkpoints.progress import IDENTITY_PATTERN
from streamer.config.errors import Problem
from streamer.config.section import Section
from transforms.raw_records import HeaderColumn, kafka_fields

#: Metadata of a Kafka record that can become a column.
MetadataColumn = Literal["topic", "partition", "offset", "timestamp", "key"]

#: Prefix of metadata columns, as in Apache Hudi's streamer.
METADATA_PREFIX = "_hoodie_kafka_source_"


class AnySource(Section, ABC):
    """A source of records."""

    checkpoint_id: Annotated[str, Field(pattern=f"^{IDENTITY_PATTERN}$")] = ""
    """The name under which the table's commits store this pipeline's position in the source. If
    several pipelines write to one table, each pipeline needs a different name. Default: the key
    that Apache Hudi's streamer also uses."""

    @property
    @abstractmethod
    def origin(self) -> str:
        """The name of the source for people, such as a topic or a folder."""

    @property
    def stored_metadata(self) -> tuple[MetadataColumn, ...]:
        """The metadata of the records that the table stores."""
        return ()

    @property
    def headers(self) -> tuple[HeaderColumn, ...]:
        """The columns of the table that headers of the records fill."""
        return ()

    @property
    def record_columns(self) -> list[pa.Field]:
        """The columns of the table that the metadata and the headers of the records fill."""
        metadata = kafka_fields(self.stored_metadata, METADATA_PREFIX)
        return [*metadata, *(one.field for one in self.headers)]

    def unresolved(self) -> list[Problem]:
        """Return a problem for each secret that this machine cannot find."""
        return []
