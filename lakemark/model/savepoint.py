"""What a savepoint keeps (``HoodieSavepointMetadata``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lakemark.model.file_slice import FileSlice


@dataclass(frozen=True, slots=True)
class SavepointMetadata:
    """The completed content of a savepoint; it has the requested time of the commit it keeps.

    Attributes:
        files: partition path → names of the files that a clean must leave alone.
        user: who asked for it, "" when that is not known.
        comment: why.
        created_at_ms: epoch milliseconds.
    """

    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    user: str = ""
    comment: str = ""
    created_at_ms: int = 0

    @classmethod
    def of(
        cls, slices: Iterable[FileSlice], user: str, comment: str, created_at_ms: int
    ) -> SavepointMetadata:
        """A savepoint of every file in these slices."""
        files: dict[str, tuple[str, ...]] = {}
        for one in slices:
            bases = (str(one.base.name),) if one.base else ()
            names = (*bases, *(str(log.name) for log in one.logs))
            partition = one.group.partition_path
            files[partition] = (*files.get(partition, ()), *names)
        return cls(files, user, comment, created_at_ms)

    def to_record(self) -> dict[str, Any]:
        """The stored record."""
        return {
            "savepointedBy": self.user,
            "savepointedAt": self.created_at_ms,
            "comments": self.comment,
            "partitionMetadata": {
                partition: {"partitionPath": partition, "savepointDataFile": list(names)}
                for partition, names in self.files.items()
            },
            "version": 1,
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> SavepointMetadata:
        """From the stored record."""
        kept = record["partitionMetadata"].items()
        return cls(
            {partition: tuple(one["savepointDataFile"]) for partition, one in kept},
            record["savepointedBy"],
            record["comments"],
            record["savepointedAt"],
        )
