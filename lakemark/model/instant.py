"""One action on the table's timeline."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from lakemark.model.action import Action, State


@dataclass(frozen=True, slots=True)
class Instant:
    """An action, when it was requested and, once it is visible, when it completed.

    Attributes:
        requested_at: names the instant for ever, ``yyyyMMddHHmmssSSS`` in the timeline's zone.
        action: what it does; for a completed instant the word of the completed file
            (a finished compaction is a ``commit``).
        state: how far it has come.
        completed_at: same format, later than ``requested_at``; completed instants only.
        is_legacy: whether the completed file is one of layout 1: its name lacks the completion
            time (which is then the file's modification time), and a commit in it is JSON.
        attempt: which attempt at a planned service it is, for the writer that made the attempt; ""
            otherwise. A listing does not show it: the content of the inflight instant names it.
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
        """Whether readers may see what it wrote."""
        return self.state is State.COMPLETED

    def inflight(self) -> Instant:
        """The same instant, one step on."""
        return replace(self, state=State.INFLIGHT)

    def completed(self, at: str) -> Instant:
        """The same instant, published at ``at``."""
        return Instant(self.requested_at, self.action.completes_as, State.COMPLETED, at)

    def __str__(self) -> str:
        return f"{self.requested_at}.{self.action}.{self.state}"
