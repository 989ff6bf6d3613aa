"""One action on the table's timeline."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from lakemark.model.action import Action, State


@dataclass(frozen=True, slots=True)
class Instant:
    """An action, its state, and the times at which it was requested and completed.

    Attributes:
        requested_at: identifies the instant, ``yyyyMMddHHmmssSSS`` in the timeline's zone.
        action: for a completed instant the action in the name of the completed file
            (a completed compaction is a ``commit``).
        state: of the instant.
        completed_at: same format, later than ``requested_at``; only of completed instants.
        is_legacy: whether the completed file is of layout 1: its name lacks the completion time,
            which is the file's modification time, and a commit in it is JSON.
        attempt: name of the attempt at a planned service, for the writer of the attempt; ""
            otherwise. A listing does not show it; the content of the inflight instant names it.
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
        """Whether its files are visible to readers."""
        return self.state is State.COMPLETED

    def inflight(self) -> Instant:
        """Return the same instant in the state inflight."""
        return replace(self, state=State.INFLIGHT)

    def completed(self, at: str) -> Instant:
        """Return the same instant, published at ``at``."""
        return Instant(self.requested_at, self.action.completes_as, State.COMPLETED, at)

    def __str__(self) -> str:
        return f"{self.requested_at}.{self.action}.{self.state}"
