"""The scenarios: which processes work on which table, and how many faults happen."""

from __future__ import annotations

from tests.protocol.model.search import Scenario
from tests.protocol.model.state import Budget, Process
from tests.protocol.model.step import Rules

COPY_ON_WRITE = Rules(is_copy_on_write=True)
NON_BLOCKING = Rules(is_non_blocking=True)


def commit(batch: int, bucket: int = 0, chances: int = 0, *queue: str) -> Process:
    """Create a writer of one batch."""
    return Process("commit", bucket=bucket, batch=batch, chances=chances, queue=queue)


def service(*programs: str) -> Process:
    """Create a process that runs these programs one after the other."""
    return Process(programs[0], queue=programs[1:])


#: Two writers of one bucket, on a table that has a commit, and on an empty table.
TWO_WRITERS = Scenario("two writers", (commit(1), commit(2)), Budget(halves=1, losses=1))
FIRST_WRITERS = Scenario("first writers", (commit(1), commit(2)), Budget(halves=1), earlier=0)
COPY_WRITERS = Scenario(
    "two writers, copy on write", (commit(1), commit(2)), Budget(halves=1, losses=1), COPY_ON_WRITE
)

#: Two writers, each of which renews its lease when half of it has passed.
RENEWING = Scenario(
    "two writers that renew their leases",
    (commit(1), commit(2)),
    Budget(halves=2, losses=1),
    Rules(lease_halves=2),
)

#: A writer retries after a conflict.
TRYING_AGAIN = Scenario(
    "trying again", (commit(1, 0, 1), commit(2)), Budget(halves=1), COPY_ON_WRITE
)

#: A writer whose heartbeat may expire, so that another process rolls it back.
DEAD_WRITER = Scenario(
    "a silent writer", (commit(1), service("recover")), Budget(halves=1, silences=1, losses=1)
)

#: A writer and a concurrent compaction.
COMPACTION = Scenario(
    "a compaction", (commit(1), service("compact")), Budget(halves=1, losses=1), earlier=2
)

#: Two executors of one plan; the heartbeat of the first may expire.
TWO_EXECUTORS = Scenario(
    "two executors", (service("compact"), service("execute")), Budget(1, 1, 1), earlier=2
)

#: The rollback of an attempt at a compaction, concurrent with the next attempt.
ATTEMPT_UNDONE = Scenario(
    "an attempt that is undone",
    (service("compact"), service("undo attempt"), service("execute")),
    Budget(halves=1, silences=1),
    earlier=2,
)

#: A writer and a compaction, and a writer of another bucket, whose commit moves the cursor.
THREE = Scenario(
    "two writers and a compaction",
    (commit(1), commit(2, 1), service("compact")),
    Budget(halves=1, losses=1),
    earlier=2,
)


#: A writer that waits while another one commits and archives its commit. The archival leaves no
#: commit active, as if others had followed.
ARCHIVED_CONFLICT = Scenario(
    "a conflict that is archived",
    (commit(1), commit(2, 0, 0, "archive")),
    Budget(halves=1),
    Rules(is_copy_on_write=True, kept=0),
)

#: Two non-blocking writers of one bucket, which has no file group yet.
SHARED_BUCKET = Scenario(
    "two non-blocking writers", (commit(1), commit(2)), Budget(1, 0, 1), NON_BLOCKING, earlier=0
)

#: Two non-blocking writers of one bucket, one of which another process may roll back.
SHARED_WITH_DEAD = Scenario(
    "two non-blocking writers, one of them silent",
    (commit(1), commit(2), service("recover")),
    Budget(silences=1),
    NON_BLOCKING,
    earlier=0,
)

#: Two non-blocking writers and a concurrent compaction of logs without a base file.
SHARED_COMPACTION = Scenario(
    "two non-blocking writers and a compaction",
    (commit(1), commit(2), service("compact")),
    Budget(),
    NON_BLOCKING,
)

#: Two archivers, one of which loses the lock.
TWO_ARCHIVERS = Scenario(
    "two archivers", (service("archive"), commit(1, 0, 0, "archive")), Budget(halves=1), earlier=3
)

#: More processes and faults than a full search can cover: for random walks.
BEYOND = (
    Scenario(
        "four processes",
        (
            commit(1, 0, 2),
            commit(2, 0, 2),
            service("compact", "archive", "recover", "archive"),
            service("recover", "undo attempt", "execute", "archive"),
        ),
        Budget(halves=4, silences=2, losses=2),
    ),
    Scenario(
        "four processes, copy on write",
        (
            commit(1, 0, 2),
            commit(2, 0, 2),
            commit(3, 1),
            service("recover", "archive", "recover", "archive"),
        ),
        Budget(halves=4, silences=2, losses=2),
        COPY_ON_WRITE,
    ),
    Scenario(
        "five processes, non-blocking",
        (
            commit(1, 0, 2),
            commit(2, 0, 2),
            commit(3, 0, 2),
            service("compact", "archive", "recover", "compact"),
            service("recover", "undo attempt", "execute", "archive"),
        ),
        Budget(halves=4, silences=2, losses=2),
        NON_BLOCKING,
        earlier=0,
    ),
)

#: Scenarios that only ``make model`` searches.
WIDE = (
    Scenario("two writers that try again", (commit(1, 0, 1), commit(2, 0, 1)), Budget(1, 0, 1)),
)
