"""Executes a plan that replaces file groups, a resize or a clustering, in the background."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from lakemark.execution.runner import Runner
from lakemark.model.commit_metadata import CommitMetadata, WriteStat
from lakemark.model.instant import Instant
from lakemark.operations.group_replacement import GroupReplacement
from streamer.background_services import BackgroundService
from streamer.events import ServiceCompleted
from streamer.wording import counted

#: What a plan replaces, and what it writes: nouns in the singular.
Nouns: TypeAlias = tuple[str, str]


def describe_replacement(instant: str, before: int, after: int, nouns: Nouns) -> str:
    """Describe a plan that was executed.

    Args:
        instant: the requested time of the plan.
        before: the number of file groups that it replaced.
        after: the number of new files.
        nouns: see ``Nouns``.
    """
    return f"{instant}: {counted(before, nouns[0])} rewritten into {counted(after, nouns[1])}"


def describe_commit(instant: Instant, metadata: CommitMetadata, nouns: Nouns) -> str:
    """Describe the commit of a plan; see ``describe_replacement``."""
    before = sum(map(len, metadata.replaced_file_ids.values()))
    return describe_replacement(instant.requested_at, before, len(metadata.write_stats), nouns)


@dataclass(frozen=True, slots=True)
class ReplacementAttempt:
    """An attempt to execute a plan; see ``Attempt``.

    Attributes:
        service: the service of the plan.
        replacement: the plan that this process executes.
        publisher: publishes the new files.
        nouns: see ``Nouns``.
        is_removable: whether the plan is removed if it fails, or if a batch waits for too long.
    """

    service: BackgroundService
    replacement: GroupReplacement[Any]
    publisher: Callable[[Sequence[WriteStat]], object]
    nouns: Nouns
    is_removable: bool = False

    @property
    def file_groups(self) -> int:
        """See ``Attempt.file_groups``."""
        return len(self.replacement.execution.plan.groups)

    @property
    def num_bytes(self) -> int:
        """See ``Attempt.num_bytes``."""
        return self.replacement.num_bytes

    def rewrite(self, runner: Runner) -> Sequence[WriteStat]:
        """See ``Attempt.rewrite``."""
        return self.replacement.rewrite(runner)

    def publish(self, stats: Sequence[WriteStat]) -> None:
        """See ``Attempt.publish``."""
        self.publisher(stats)

    def completed(self, stats: Sequence[WriteStat], seconds: float) -> ServiceCompleted:
        """See ``Attempt.completed``."""
        instant = self.replacement.execution.instant.requested_at
        text = describe_replacement(instant, self.file_groups, len(stats), self.nouns)
        return ServiceCompleted(self.service.name, text, seconds, self.service.table, instant)

    def clean_up(self, error: Exception) -> None:
        """See ``Attempt.clean_up``. The next attempt deletes the files of a plan that is kept."""
        if self.is_removable:
            self.replacement.remove()

    def remove(self) -> bool:
        """See ``Attempt.remove``."""
        return self.is_removable and self.replacement.remove()

    def stop_heartbeat(self) -> None:
        """See ``Attempt.stop_heartbeat``."""
        self.replacement.stop_heartbeat()
