"""The content of a savepoint (``HoodieSavepointMetadata``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lakemark.model.file_slice import FileSlice


@dataclass(frozen=True, slots=True, kw_only=True)
class SavepointMetadata:
    """The content of a savepoint. Its instant has the same requested time as the kept commit.

    Attributes:
        files: names of the files that a clean must not delete, by partition path.
        user: name of the user who created the savepoint; "" if unknown.
        comment: the user's comment.
        created_at_ms: creation time in milliseconds since the epoch.
    """

    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    user: str = ""
    comment: str = ""
    created_at_ms: int = 0

    @classmethod
    def of(
        cls, slices: Iterable[FileSlice], user: str, comment: str, created_at_ms: int
    ) -> SavepointMetadata:
        """Return the content of a savepoint that keeps all files of these slices, each once."""
        found: dict[str, dict[str, None]] = {}
        for one in slices:
            bases = (str(one.base.name),) if one.base else ()
            names = (*bases, *(str(log.name) for log in one.logs))
            found.setdefault(one.group.partition_path, {}).update(dict.fromkeys(names))
        files = {partition: tuple(names) for partition, names in found.items()}
        return cls(files=files, user=user, comment=comment, created_at_ms=created_at_ms)

    def to_record(self) -> dict[str, Any]:
        """Build the stored record."""
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
        """Read the stored record."""
        kept = record["partitionMetadata"].items()
        return cls(
            files={partition: tuple(one["savepointDataFile"]) for partition, one in kept},
            user=record["savepointedBy"],
            comment=record["comments"],
            created_at_ms=record["savepointedAt"],
        )
