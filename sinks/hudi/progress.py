"""How far a table has read its topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.resume import newest_checkpoint
from table.hudi_table import HudiTable
from table.model.instant import Instant
from table.timeline.timeline import Timeline


def checkpoint_of(table: HudiTable, timeline: Timeline) -> KafkaCheckpoint | None:
    """The newest checkpoint on a timeline; reads commits from the newest back, as far as needed."""
    commits = ((i, _ExtraMetadata(table, i)) for i in timeline.completed())
    return newest_checkpoint(commits)


class _ExtraMetadata(Mapping[str, str]):
    """A commit's extra metadata, read when it is asked for."""

    def __init__(self, table: HudiTable, instant: Instant) -> None:
        self._table, self._instant = table, instant

    def __getitem__(self, key: str) -> str:
        return self._read()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def _read(self) -> Mapping[str, str]:
        return self._table.store.read_commit(self._instant).extra_metadata
