"""Where a run goes on: the newest that any commit tells of its streamer's progress."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

from checkpoints import commit_keys
from checkpoints.commit_keys import DamagedCheckpoint
from checkpoints.progress import DEFAULT_IDENTITY, Progress, TableProgress, decode_progress
from lakemark.model.action import Action
from lakemark.model.instant import Instant

#: Instants with the extra metadata of their commits, in any order. Those that are pending, or that
#: write no rows, are passed over. Extra metadata is looked at only as far back as is needed.
Commits: TypeAlias = Iterable[tuple[Instant, Mapping[str, str]]]

#: Whether the commit of that requested time was not undone. Others may still tell of one that was.
Stands: TypeAlias = Callable[[str], bool]

#: Commits among which the one stays that Apache Hudi's streamer would go on from.
_HANDED_BACK_WITHIN = 500


def _any(requested_at: str) -> bool:
    return True


def newest_progress(
    commits: Commits, identity: str = DEFAULT_IDENTITY, stands: Stands = _any
) -> Progress | None:
    """The progress of one streamer, or None when no commit knows of any.

    Delta commits count by completion time, newest first, past those without a checkpoint. A
    compaction or clustering may have taken its checkpoint over when it was planned, so it counts
    as of then: a delta commit completed since is newer, though it was published before.

    Raises:
        DamagedCheckpoint: the newest checkpoint is empty or unreadable.
    """
    return newest_table_progress(commits, stands, identity).streamers.get(identity)


def newest_table_progress(
    commits: Commits,
    stands: Stands = _any,
    wanted: str | None = None,
    *,
    passes_damaged: bool = False,
) -> TableProgress:
    """The progress of every streamer, and up to when it is known.

    Args:
        commits: of the table.
        stands: what counts.
        wanted: the streamer that matters; commits are read as far back as it asks. None for all.
        passes_damaged: whether commits that cannot be read count as if they told nothing.

    Raises:
        DamagedCheckpoint: a commit that may tell the newest cannot be read.
    """
    newest, as_of = _newest(commits, wanted, stands, passes_damaged)
    return TableProgress({identity: found.progress for identity, found in newest.items()}, as_of)


def commits_to_keep(commits: Commits, stands: Stands = _any) -> frozenset[str]:
    """Requested times of the commits that tell the newest progress of each streamer.

    For whoever archives: as long as these stay in the active timeline, no streamer loses its
    place. Once a newer commit of ours is there, it alone tells all of ours. Apache Hudi's streamer
    reads no book, so the commit that it would go on from stays, too, until the default streamer has
    made another, or was reset, or has been away for too long. Commits of others do not carry its
    keys on: what these knew may be older than what it commits meanwhile, and it would take the
    newest for its own.

    Raises:
        DamagedCheckpoint: a commit that may tell the newest cannot be read.
    """
    listed = list(commits)
    newest, _ = _newest(listed, None, stands)
    kept = {found.carrier.requested_at for found in newest.values()}
    shared = newest.get(DEFAULT_IDENTITY)
    if shared is not None and shared.progress.checkpoint is not None:
        kept |= _known_to_apache(listed, shared.progress.commit)
    return frozenset(kept)


@dataclass(frozen=True, slots=True)
class _Found:
    """Progress, and the commit that tells of it."""

    progress: Progress
    carrier: Instant


def _newest(
    commits: Commits, wanted: str | None, stands: Stands, passes_damaged: bool = False
) -> tuple[dict[str, _Found], str]:
    """From the newest commit back, until nothing newer can come; ``wanted`` None asks for all.

    Also tells up to when all is known that was completed.

    No commit tells of anything later than its own completion. One streamer that was not met yet is
    looked for to the end: who wrote a book may not have known what had been archived before.
    """
    ingest = [(i, extra) for i, extra in commits if i.is_completed and i.action.is_ingest]
    has_delta_commits = any(i.action is Action.DELTA_COMMIT for i, _ in ingest)
    ingest.sort(key=lambda c: (c[0].completed_at or "", c[0].requested_at), reverse=True)
    found: dict[str, _Found] = {}
    as_of = ""
    for instant, extra in ingest:
        latest_here = instant.completed_at or ""
        settled = found.get(wanted) if wanted is not None else None
        if latest_here <= as_of and (wanted is None or settled):
            break
        if settled and settled.progress.known_at >= latest_here:
            break
        page = _page(instant, extra, has_delta_commits, passes_damaged)
        standing = {n: told for n, told in page.streamers.items() if stands(told.commit)}
        if len(standing) == len(page.streamers):  # otherwise what was before comes to light again
            as_of = max(as_of, page.as_of)
        for identity, progress in standing.items():
            known = found.get(identity)
            if known is None or known.progress.known_at < progress.known_at:
                found[identity] = _Found(progress, instant)
    return found, as_of


def _known_to_apache(commits: Commits, newest: str) -> set[str]:
    """The commit with a checkpoint under Apache Hudi's keys, from ``newest`` back; maybe none.

    Its streamer looks at delta commits only, where there are any (``StreamerCheckpointUtils``); a
    compaction that took the checkpoint over does not count.
    """
    ingest = [(i, extra) for i, extra in commits if i.is_completed and i.action.is_ingest]
    looked_at = [c for c in ingest if c[0].action is Action.DELTA_COMMIT] or ingest
    latest = sorted(looked_at, key=lambda c: c[0].requested_at, reverse=True)[:_HANDED_BACK_WITHIN]
    holders = (
        i.requested_at
        for i, extra in latest
        if i.requested_at <= newest and commit_keys.checkpoint_key(extra) is not None
    )
    return set(islice(holders, 1))


def _page(
    instant: Instant, extra: Mapping[str, str], has_delta_commits: bool, passes_damaged: bool
) -> TableProgress:
    try:
        return decode_progress(extra, instant, _known_at(instant, has_delta_commits))
    except DamagedCheckpoint:
        if not passes_damaged:
            raise
        return TableProgress()


def _known_at(instant: Instant, has_delta_commits: bool) -> str:
    """When the progress that ``instant`` tells of under Apache Hudi's keys was known.

    Where rows arrive as delta commits, a ``commit`` is a finished compaction (or, once the table
    was turned into copy-on-write, a later batch, whose request follows the last delta commit).
    """
    may_be_service = instant.action is Action.REPLACE_COMMIT or (
        has_delta_commits and instant.action is Action.COMMIT
    )
    if may_be_service or instant.completed_at is None:
        return instant.requested_at
    return instant.completed_at
