"""Timelines that tests build one instant after the other, on a store in memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from lakemark.codec import avro_container
from lakemark.model.action import Action, State
from lakemark.model.commit_metadata import CommitMetadata, WriteStat
from lakemark.model.compaction_plan import CompactionOperation, CompactionPlan
from lakemark.model.file_slice import FileGroupId
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.storage import Storage
from lakemark.timeline.content import encode_commit, encode_compaction_plan
from lakemark.timeline.layout import LayoutV1, LayoutV2
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from tests.table_services import new_storage

#: A partition and a file id.
Group = tuple[str, str]


def time_of(number: int) -> str:
    """Return the instant time of this number, in the past."""
    return f"20260101{number:06d}000"


@dataclass
class TimelineInMaking:
    """A table's timeline. Each request and each completion gets the next time.

    Attributes:
        version: version of the table.
        storage: storage of the table.
    """

    version: FormatVersion = FormatVersion.V9
    storage: Storage = field(default_factory=new_storage)
    _times: int = 0

    def __post_init__(self) -> None:
        layout = LayoutV1() if self.version is FormatVersion.V6 else LayoutV2()
        self.store = TimelineStore(self.storage, layout, self.version)

    def load(self) -> Timeline:
        return self.store.load()

    def next_time(self) -> str:
        self._times += 1
        return time_of(self._times)

    def request(self, action: Action, content: bytes = b"") -> Instant:
        requested = Instant(self.next_time(), action, State.REQUESTED)
        self.store.create(requested, content)
        return requested

    def begin(self, action: Action, requested: Instant | None = None) -> Instant:
        inflight = (requested or self.request(action)).inflight()
        self.store.create(inflight)
        return inflight

    def complete(self, pending: Instant, metadata: CommitMetadata) -> Instant:
        return self.publish(pending, encode_commit(pending.action, metadata, self.version))

    def publish(self, pending: Instant, content: bytes = b"") -> Instant:
        self.store.prepare(pending, content)
        completed = self.store.publish(pending, self.next_time(), lambda: None)
        self.store.withdraw(pending)
        return completed

    def commit(self, action: Action, metadata: CommitMetadata) -> Instant:
        return self.complete(self.begin(action), metadata)

    def plan_compaction(self, groups: Iterable[Group]) -> Instant:
        operations = (
            CompactionOperation(
                group=FileGroupId(*group), base_instant=time_of(0), data_file=None, log_files=()
            )
            for group in groups
        )
        content = encode_compaction_plan(CompactionPlan(tuple(operations)))
        return self.request(Action.COMPACTION, content)

    def plan_clustering(self, groups: Iterable[Group]) -> Instant:
        slices = [{"partitionPath": partition, "fileId": file_id} for partition, file_id in groups]
        record: dict[str, object] = {
            "operationType": "CLUSTER",
            "clusteringPlan": {"inputGroups": [{"slices": slices}]},
        }
        is_v6 = self.version is FormatVersion.V6
        action = Action.REPLACE_COMMIT if is_v6 else Action.CLUSTERING
        content = avro_container.encode("HoodieRequestedReplaceMetadata", record)
        return self.request(action, content)


def written(*groups: Group, compacted: bool = False) -> CommitMetadata:
    """Return the metadata of a commit or compaction that wrote one file of each group."""
    stats = (
        WriteStat(file_id=file_id, path=f"{partition}/{file_id}", partition_path=partition)
        for partition, file_id in groups
    )
    return CommitMetadata(write_stats=tuple(stats), compacted=compacted)


def replacing(*groups: Group) -> CommitMetadata:
    """Return the metadata of a replace commit that replaces these groups."""
    return CommitMetadata(replaced_file_ids={partition: (name,) for partition, name in groups})
