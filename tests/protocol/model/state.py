"""The state of the model: a table on storage, its lock, and the processes that work on it.

Everything is immutable and hashable, so that a search can tell states apart. Times are numbers:
``clock`` is the newest that was generated, and each new one is larger. A *batch* is what a writer
has to commit; its rows are one number.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import NamedTuple, TypeAlias


class Action(StrEnum):
    COMMIT = "commit"
    COMPACTION = "compaction"
    ROLLBACK = "rollback"
    CLEAN = "clean"
    RESTORE = "restore"


class Phase(IntEnum):
    REQUESTED = 0
    INFLIGHT = 1
    COMPLETED = 2


#: What writes files.
WRITES = (Action.COMMIT, Action.COMPACTION)

#: A bucket, and the instant that created the file group.
Group: TypeAlias = tuple[int, int]

#: Nobody holds the lock.
FREE = -1


class File(NamedTuple):
    """A data file; its name is all but ``rows``."""

    group: Group
    instant: int
    attempt: int
    is_base: bool
    rows: frozenset[int]


class Instant(NamedTuple):
    """An instant on the timeline, in its furthest state.

    Attributes:
        name: requested time.
        action: what it does.
        phase: how far it is.
        completed_at: 0 while it is pending.
        attempt: which attempt made it inflight; 0 for none.
        target: what a rollback undoes, or the commit that a restore goes back to.
        plan: files that a compaction merges or a clean deletes.
        undone: instants that a restore undoes.
        wrote: files that a completed write lists.
        batch: the rows of a completed commit; 0 for none.
    """

    name: int
    action: Action
    phase: Phase
    completed_at: int = 0
    attempt: int = 0
    target: int = 0
    plan: frozenset[File] = frozenset()
    undone: frozenset[int] = frozenset()
    wrote: frozenset[File] = frozenset()
    batch: int = 0

    @property
    def is_completed(self) -> bool:
        return self.phase is Phase.COMPLETED


class Lock(NamedTuple):
    """The lock file.

    Attributes:
        owner: number of the process; ``FREE`` if it was released.
        left: how many halves of the lease are left; 0 once it has run out.
    """

    owner: int = FREE
    left: int = 0


class History(NamedTuple):
    """The archived timeline.

    Attributes:
        files: data files: a number, and the instants in it.
        manifests: number and named data files, the newest last.
        version: the manifest that readers use; 0 for none.
    """

    files: frozenset[tuple[int, frozenset[Instant]]] = frozenset()
    manifests: tuple[tuple[int, frozenset[int]], ...] = ()
    version: int = 0


class Request(NamedTuple):
    """A publication whose client has given up waiting; the store may still carry it out."""

    instant: Instant
    attempt: int


class Process(NamedTuple):
    """A process: where it is in its program, and what it remembers.

    Attributes:
        program: name of its program.
        step: program counter.
        queue: programs that follow.
        bucket: that a writer writes to.
        batch: the rows that a writer has to commit.
        instant: what it is working on; 0 for nothing.
        attempt: its attempt at that.
        base: instants that were committed when it began; of a rollback unused.
        wrote: the file that it wrote.
        rollback: the rollback that it executes.
        completed_at: the completion time that it generated.
        tries: attempts at a publication that it has made.
        chances: how often it may still begin again.
        todo: files or names that it is about to delete.
        seen: names that it has listed.
        beat: the instant that its heartbeat is for; 0 for none, and once it has expired.
    """

    program: str
    step: int = 0
    queue: tuple[str, ...] = ()
    bucket: int = 0
    batch: int = 0
    instant: int = 0
    attempt: int = 0
    base: frozenset[int] = frozenset()
    wrote: File | None = None
    rollback: int = 0
    completed_at: int = 0
    tries: int = 0
    chances: int = 0
    todo: frozenset[File] = frozenset()
    seen: frozenset[tuple[int, int]] = frozenset()
    beat: int = 0


class Budget(NamedTuple):
    """What may still go wrong.

    Attributes:
        halves: halves of a lease that pass while its holder stands still or is cut off.
        silences: processes that stand still until their heartbeat has expired.
        losses: publications that get no answer.
    """

    halves: int = 0
    silences: int = 0
    losses: int = 0


class State(NamedTuple):
    """All there is.

    Attributes:
        clock: the newest time.
        lock: the lock file.
        prepared: instant and attempt of each prepared content.
        timeline: the active one, by name.
        files: data files.
        history: the archived timeline; what is in it completed before.
        beats: instants with a live heartbeat.
        acknowledged: batches that were reported as committed and that no restore undid.
        cursor: the newest completion time of a write that a reader may have seen.
        requests: publications that may still be carried out.
        processes: by number.
        budget: what may still go wrong.
    """

    clock: int
    lock: Lock
    prepared: frozenset[tuple[int, int]]
    timeline: tuple[Instant, ...]
    files: frozenset[File]
    history: History
    beats: frozenset[int]
    acknowledged: frozenset[int]
    cursor: int
    requests: frozenset[Request]
    processes: tuple[Process, ...]
    budget: Budget

    def holds_lease(self, process: int) -> bool:
        """Whether the process has the lock and its lease has not run out."""
        return self.lock.owner == process and self.lock.left > 0

    def find(self, name: int) -> Instant | None:
        """The instant of that name on the active timeline."""
        return next((i for i in self.timeline if i.name == name), None)

    def pending(self, *actions: Action) -> list[Instant]:
        """Pending instants of these actions, oldest first."""
        return [i for i in self.timeline if i.action in actions and not i.is_completed]

    def completed(self, *actions: Action) -> list[Instant]:
        """Completed instants of these actions on the active timeline, oldest first."""
        return [i for i in self.timeline if i.action in actions and i.is_completed]

    def with_instant(self, instant: Instant) -> State:
        """The state in which the timeline shows the instant like this."""
        others = [i for i in self.timeline if i.name != instant.name]
        return self._replace(timeline=tuple(sorted([*others, instant])))

    def without_instants(self, names: frozenset[int]) -> State:
        """The state without these on the active timeline."""
        return self._replace(timeline=tuple(i for i in self.timeline if i.name not in names))

    def with_process(self, number: int, process: Process) -> State:
        """The state in which the process is like this."""
        before, after = self.processes[:number], self.processes[number + 1 :]
        return self._replace(processes=(*before, process, *after))

    def archived(self) -> frozenset[Instant]:
        """The instants that readers find in the history."""
        named = dict(self.history.manifests).get(self.history.version, frozenset())
        return frozenset(i for number, some in self.history.files if number in named for i in some)
