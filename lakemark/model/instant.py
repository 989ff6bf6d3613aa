"""One action on the table's timeline."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from lakemark.model.action import Action, State


@dataclass(frozen=True, slots=True)
class Instant:
    """An action, its state, and the times at which it was requested and completed.

    Attributes:
        requested_at: requested time, ``yyyyMMddHHmmssSSS`` in the timeline's time zone. It
            identifies the instant.
        action: the action. For a completed instant, this is the action in the name of the completed
            file, so a completed compaction has the action ``commit``.
        state: state of the instant.
        completed_at: completion time, in the same format as ``requested_at``; it is later than
            ``requested_at``. None if the instant is not completed.
        is_legacy: whether the completed file is of timeline layout 1. The name of such a file has
            no completion time, so the file's modification time is used. A commit in it is JSON.
        attempt: name of this writer's attempt to execute a table service. It is stored only in the
            content of the inflight instant, so instants from a listing have "".
    """

    requested_at: str
    action: Action
    state: State
    completed_at: str | None = None
    is_legacy: bool = False
    attempt: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        assert (self.completed_at is not None) == (self.state is State.COMPLETED), self

    @property
    def is_completed(self) -> bool:
        """Whether the instant is completed, so that readers see its files."""
        return self.state is State.COMPLETED

    def inflight(self) -> Instant:
        """Return this instant in state ``INFLIGHT``."""
        return replace(self, state=State.INFLIGHT)

    def completed(self, at: str) -> Instant:
        """Return this instant in state ``COMPLETED``, with the completion time ``at``."""
        return Instant(self.requested_at, self.action.completes_as, State.COMPLETED, at)

    def __str__(self) -> str:
        return f"{self.requested_at}.{self.action}.{self.state}"
