"""The state of the model: a table on storage, its lock, and the processes that work on it.

Everything is immutable and hashable, so that a search recognises a state. Times are numbers:
``clock`` is the newest that was generated, and each new one is larger. A *batch* is the content
of one commit; a number represents its rows.
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


#: Actions that write data files.
WRITES = (Action.COMMIT, Action.COMPACTION)

#: A bucket, and the instant that created the file group, or ``SHARED``.
Group: TypeAlias = tuple[int, int]

#: Stands for any creator of a file group that several writers may create.
SHARED = -1

#: The owner of a lock that no process holds.
FREE = -1


class File(NamedTuple):
    """A data file; all fields except ``rows`` make up its name."""

    group: Group
    instant: int
    attempt: int
    is_base: bool
    rows: frozenset[int]


class Instant(NamedTuple):
    """An instant on the timeline, in its furthest state.

    Attributes:
        name: requested time.
        action: its action.
        phase: its state.
        completed_at: 0 while it is pending.
        attempt: the attempt that made it inflight; 0 for none.
        target: the instant that a rollback undoes, or the commit that a restore restores to.
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
        owner: number of the process; ``FREE`` if the lock was released.
        left: how many halves of the lease remain; 0 once it has expired.
    """

    owner: int = FREE
    left: int = 0


class History(NamedTuple):
    """The archived timeline.

    Attributes:
        files: data files: a number, and the instants in the file.
        manifests: number of the manifest, and the data files that it lists; the newest last.
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
    """A process: its position in its program, and its variables.

    Attributes:
        program: name of its program.
        step: program counter.
        queue: programs that follow.
        bucket: the bucket that a writer writes to.
        batch: the rows that a writer has to commit.
        instant: the instant that it is working on; 0 for none.
        attempt: its attempt at that instant.
        base: instants that were committed when it began; a rollback does not use it.
        wrote: the file that it wrote.
        rollback: the rollback that it executes.
        completed_at: the completion time that it generated.
        tries: how often it has tried to publish.
        chances: how often it may still retry its batch.
        todo: files or names that it is about to delete.
        seen: names that it has listed.
        beat: the instant of its heartbeat; 0 for none, and once the heartbeat has expired.
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
    """How many faults may still happen.

    Attributes:
        halves: halves of a lease that pass while its holder is paused or cut off.
        silences: processes that are paused until their heartbeat has expired.
        losses: publications that get no answer.
    """

    halves: int = 0
    silences: int = 0
    losses: int = 0


class State(NamedTuple):
    """The whole state of the table, the lock and the processes.

    Attributes:
        clock: the newest time that was generated.
        lock: the lock file.
        prepared: instant and attempt of each prepared content.
        timeline: the instants of the active timeline, by name.
        files: data files.
        history: the archived timeline.
        beats: instants with a live heartbeat.
        acknowledged: batches that were reported as committed and that no restore undid.
        cursor: the newest completion time of a write that a reader may have seen.
        requests: publications that may still be carried out.
        processes: the processes, by number.
        budget: the faults that may still happen.
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
        """Whether the process has the lock and its lease has not expired."""
        return self.lock.owner == process and self.lock.left > 0

    def find(self, name: int) -> Instant | None:
        """Find the instant of that name on the active timeline."""
        return next((i for i in self.timeline if i.name == name), None)

    def pending(self, *actions: Action) -> list[Instant]:
        """Pending instants of these actions, oldest first."""
        return [i for i in self.timeline if i.action in actions and not i.is_completed]

    def completed(self, *actions: Action) -> list[Instant]:
        """Completed instants of these actions on the active timeline, oldest first."""
        return [i for i in self.timeline if i.action in actions and i.is_completed]

    def with_instant(self, instant: Instant) -> State:
        """Return the state with this instant on the timeline, in place of one of its name."""
        others = [i for i in self.timeline if i.name != instant.name]
        return self._replace(timeline=tuple(sorted([*others, instant])))

    def without_instants(self, names: frozenset[int]) -> State:
        """Return the state without these instants on the active timeline."""
        return self._replace(timeline=tuple(i for i in self.timeline if i.name not in names))

    def with_process(self, number: int, process: Process) -> State:
        """Return the state in which the process is replaced."""
        before, after = self.processes[:number], self.processes[number + 1 :]
        return self._replace(processes=(*before, process, *after))

    def archived(self) -> frozenset[Instant]:
        """The instants that readers find in the history."""
        named = dict(self.history.manifests).get(self.history.version, frozenset())
        return frozenset(i for number, some in self.history.files if number in named for i in some)
