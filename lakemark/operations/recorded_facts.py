"""What the commits of a table record about it: its columns and its index."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakemark.config import keys
from lakemark.model.action import COMMITS
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.operations.cached_snapshot import CachedSnapshot
from lakemark.read.renamed_columns import check_no_renamed_columns
from lakemark.storage import Storage
from lakemark.timeline.timeline_store import TimelineStore


@dataclass(frozen=True, slots=True)
class RecordedFacts:
    """What the newest commits record, or the table's creation as long as there is no commit.

    Attributes:
        storage: the storage of the table's root.
        store: reads the commits.
        snapshot: the cached properties and timeline.
    """

    storage: Storage
    store: TimelineStore
    snapshot: CachedSnapshot

    def newest_metadata(self) -> CommitMetadata | None:
        """Return the metadata of the newest completed commit that contains the table's schema.

        Columns may be added while a table service runs. So the commit of a table service is
        returned only if no other commit contains a schema.
        """
        of_service = None
        for instant in reversed(self.snapshot.timeline.completed(*COMMITS)):
            metadata = self.store.read_commit(instant)
            if metadata.extra_metadata.get(keys.SCHEMA):
                if metadata.may_change_schema:
                    return metadata
                of_service = of_service or metadata
        return of_service

    @property
    def bucket_count(self) -> int | None:
        """The number of buckets in each partition, from the newest active commit that records it.

        Before the first commit, the number is that of the table's creation. None if no commit
        records the number. Commits of Apache Hudi do not record it.
        """
        for instant in reversed(self.snapshot.timeline.completed(*COMMITS)):
            count = self.store.read_commit(instant).extra_metadata.get(keys.BUCKET_COUNT)
            if count is not None:
                return int(count)
        count = self.index_of_creation.get(keys.BUCKET_COUNT)
        return None if count is None else int(count)

    @property
    def index_of_creation(self) -> Mapping[str, str]:
        """The index with which lakemark created the table, under the keys that commits use.

        Empty if the table has a commit, which records the index; or if no index is known.
        """
        if self.snapshot.timeline.completed(*COMMITS):
            return {}
        stored = self.snapshot.properties.values
        return {key: stored[key] for key in keys.INDEX_OF_CREATION if key in stored}

    @property
    def hash_fields(self) -> tuple[str, ...]:
        """The fields of the record key that the bucket index hashes; empty if it hashes all."""
        newest = self.newest_metadata()
        if newest is None:
            return ()
        hashed = newest.extra_metadata.get(keys.BUCKET_HASH_FIELDS, "")
        fields = tuple(name for name in hashed.split(",") if name)
        return () if fields == self.snapshot.properties.record_key_fields else fields

    @property
    def avro_schema(self) -> dict[str, Any] | None:
        """The Avro schema of the newest commit; None before the first commit.

        Raises:
            Unsupported: columns were renamed by schema on read.
        """
        metadata = self.newest_metadata()
        if metadata is None:
            return None
        check_no_renamed_columns(self.storage, metadata.extra_metadata)
        parsed: dict[str, Any] = json.loads(metadata.extra_metadata[keys.SCHEMA])
        return parsed

    @property
    def known_avro_schema(self) -> dict[str, Any] | None:
        """The schema of the newest commit, or else the one with which the table was created."""
        return self.avro_schema or self.snapshot.properties.create_schema
