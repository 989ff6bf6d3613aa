"""How far the streamers of a table have read, according to the commits of the table.

Several streamers may write one table, each under its own identity. Each commit records the progress
of all streamers that the commit's writer knows. So a streamer's progress is not lost when its own
last commit is archived. A copied entry may be older than what its streamer has committed meanwhile.
So each entry contains the time from which the entry is valid. Among all commits' entries for a
streamer, the entry with the latest time is used.

JSON under ``lakemark.checkpoints``::

    {"as_of": time, "streamers": {identity: {"checkpoint": text or null, "commit": time,
     "known_at": time, "topic_id": text, "obeyed": {key: text}}}}

An empty value is omitted. ``checkpoint`` is null after a reset. The default streamer, whose
identity is "", also stores its checkpoint under Apache Hudi's key (``carried_metadata``).

The caller's ``parse`` decides the type of a checkpoint. For a streamer that resumes, it is a
position in a source. For archival, it is the text itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice
from typing import Any, Generic, TypeAlias, TypeVar

from lakemark.config import keys
from lakemark.errors import Permanent
from lakemark.model.action import COMMITS, Action
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.instant import Instant
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.transaction.carried_metadata import applied_options, checkpoint_key

#: The identity of the streamer that shares its checkpoint with Apache Hudi's streamer.
DEFAULT_IDENTITY = ""

#: Number of digits of an instant time down to the second. A time that is truncated to these digits
#: sorts before all times of the same second.
_TO_THE_SECOND = 14

#: How many commits archival searches for the commit from which Apache Hudi's streamer would resume.
_KEPT_FOR_APACHE_WITHIN = 500

#: Instants with the extra metadata of their commits, in any order. Pending instants, and instants
#: that write no rows, are ignored. The extra metadata of a commit is read only when it is needed.
Commits: TypeAlias = Iterable[tuple[Instant, Mapping[str, str]]]

#: Returns whether the commit of a requested time has not been undone. After a commit was rolled
#: back or restored away, other commits may still contain a copy of its entry.
IsInEffect: TypeAlias = Callable[[str], bool]

Checkpoint = TypeVar("Checkpoint")

#: How many characters of a checkpoint a message shows. A position in files may contain many paths.
_SHOWN = 200


class DamagedCheckpoint(Permanent):
    """A commit carries a checkpoint that cannot be parsed, so no run knows where to resume.

    Attributes:
        commit: the requested time of the commit; "" if it is not known.
        key: the key in the commit's extra metadata.
        value: the text under this key.
    """

    def __init__(self, commit: str, key: str, value: str) -> None:
        place = f"commit {commit}" if commit else "the commit"
        is_ours = key == keys.CHECKPOINTS
        form = (
            "JSON with streamers and as_of"
            if is_ours
            else "the position in a source, such as topic,0:123"
        )
        super().__init__(
            f"{place} carries {key}={_shortened(value)!r}, expected {form}; set the offsets "
            "to resume from with lakemark checkpoint set TABLE OFFSETS --run"
        )
        self.commit, self.key, self.value = commit, key, value


def _shortened(value: str) -> str:
    return value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…"


@dataclass(frozen=True, kw_only=True)  # no slots, so that an alias with a type can be called
class StreamerProgress(Generic[Checkpoint]):
    """How far one streamer has read.

    Attributes:
        checkpoint: the checkpoint from which the streamer resumes; None after a reset.
        commit: the requested time of the commit that moved the streamer to the checkpoint.
        known_at: the instant time from which this progress is valid; "" in ``commit`` itself,
            because a commit does not know its own completion time.
        topic_id: Kafka's id of the topic; "" if it is not known.
        key: the key of the extra metadata under which the checkpoint is stored.
        applied: the options that Apache Hudi's streamer has applied.
    """

    checkpoint: Checkpoint | None
    commit: str
    known_at: str = ""
    topic_id: str = ""
    key: str = keys.CHECKPOINTS
    applied: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)  # no slots, so that an alias with a type can be called
class TableProgress(Generic[Checkpoint]):
    """The progress of all streamers that one commit records.

    Attributes:
        streamers: the progress of each streamer, by identity.
        as_of: the completion time up to which all completed commits are included.
    """

    streamers: Mapping[str, StreamerProgress[Checkpoint]] = field(default_factory=dict)
    as_of: str = ""

    def with_progress(
        self, identity: str, progress: StreamerProgress[Checkpoint]
    ) -> TableProgress[Checkpoint]:
        """Return the table's progress with new progress of one streamer."""
        return replace(self, streamers={**self.streamers, identity: progress})


@dataclass(frozen=True, slots=True)
class FoundProgress(Generic[Checkpoint]):
    """The progress of one streamer, and the commit in which it was found."""

    progress: StreamerProgress[Checkpoint]
    carrier: Instant


def decode_progress(
    extra_metadata: Mapping[str, str],
    instant: Instant,
    known_at: str,
    parse: Callable[[str], Checkpoint],
) -> TableProgress[Checkpoint]:
    """Return the progress of all streamers that a completed commit records.

    Args:
        extra_metadata: the extra metadata of the commit.
        instant: the commit.
        known_at: the time from which a checkpoint under Apache Hudi's keys is valid.
        parse: parses the text of a checkpoint, or raises ``ValueError``.

    Raises:
        DamagedCheckpoint: the recorded progress or a checkpoint cannot be parsed.
    """
    recorded = _parse_json(extra_metadata.get(keys.CHECKPOINTS), instant, parse)
    key = checkpoint_key(extra_metadata)
    if key is None:
        return recorded
    text = extra_metadata[key]
    try:
        checkpoint = parse(text)
    except ValueError as error:
        raise DamagedCheckpoint(instant.requested_at, key, text) from error
    default = recorded.streamers.get(DEFAULT_IDENTITY)
    if default is not None and default.checkpoint == checkpoint:
        return recorded.with_progress(DEFAULT_IDENTITY, replace(default, key=key))
    applied = applied_options(extra_metadata)
    progress = StreamerProgress(
        checkpoint=checkpoint,
        commit=instant.requested_at,
        known_at=known_at,
        key=key,
        applied=applied,
    )
    return recorded.with_progress(DEFAULT_IDENTITY, progress)


def find_newest(
    commits: Commits,
    parse: Callable[[str], Checkpoint],
    is_in_effect: IsInEffect,
    wanted: str | None = None,
    *,
    skips_damaged: bool = False,
) -> tuple[dict[str, FoundProgress[Checkpoint]], str]:
    """Return the newest progress of each streamer.

    Commits are searched by completion time, newest first. Commits without a checkpoint are skipped.
    A compaction or a clustering may have copied a checkpoint when it was planned, so this copy is
    dated by the requested time. The progress of a delta commit that completed after the requested
    time is newer, even if the delta commit completed before the compaction.

    No commit records progress that is later than the commit's completion, so the search may end
    early. But if the wanted streamer has not been found, all commits are searched. The reason is
    that a commit's writer may not have known the progress in archived commits.

    Args:
        commits: the commits of the table.
        parse: see ``decode_progress``.
        is_in_effect: returns whether a commit has not been undone.
        wanted: the identity of the wanted streamer; None for all streamers.
        skips_damaged: whether to skip commits whose progress cannot be parsed.

    Returns:
        The newest progress by identity, and the completion time up to which the progress includes
        all completed commits.

    Raises:
        DamagedCheckpoint: a commit that may record the newest progress cannot be parsed.
    """
    ingest = [(i, extra) for i, extra in commits if i.is_completed and i.action.is_ingest]
    has_delta_commits = any(i.action is Action.DELTA_COMMIT for i, _ in ingest)
    ingest.sort(key=lambda c: (c[0].completed_at or "", c[0].requested_at), reverse=True)
    found: dict[str, FoundProgress[Checkpoint]] = {}
    as_of = ""
    for instant, extra in ingest:
        latest_here = instant.completed_at or ""
        known = found.get(wanted) if wanted is not None else None
        if latest_here <= as_of and (wanted is None or known):
            break
        if known and known.progress.known_at >= latest_here:
            break
        recorded = _decode(instant, extra, has_delta_commits, parse, skips_damaged)
        valid = {n: entry for n, entry in recorded.streamers.items() if is_in_effect(entry.commit)}
        if len(valid) == len(recorded.streamers):  # otherwise older progress counts again
            as_of = max(as_of, recorded.as_of)
        for identity, progress in valid.items():
            before = found.get(identity)
            if before is None or before.progress.known_at < progress.known_at:
                found[identity] = FoundProgress(progress, instant)
    return found, as_of


def commits_to_keep(commits: Commits, is_in_effect: IsInEffect) -> frozenset[str]:
    """Return the requested times of the commits that record the newest progress of each streamer.

    Archival must keep these commits active, or a streamer would lose its position. Every commit of
    lakemark records the progress of all streamers, so one such commit may be enough.

    Apache Hudi's streamer does not read ``lakemark.checkpoints``, but a key of its own. Only the
    streamer without an id (the default streamer) also writes this key. So the newest commit with
    this key is kept, too, until the default streamer commits again, is reset, or has made no commit
    for a long time. Commits of other streamers do not copy the key: Apache Hudi's streamer would
    take the copy for its newest checkpoint, although it may have committed a newer one meanwhile.

    Raises:
        DamagedCheckpoint: a commit that may record the newest progress cannot be parsed.
    """
    listed = list(commits)
    newest, _ = find_newest(listed, _as_text, is_in_effect)
    kept = {found.carrier.requested_at for found in newest.values()}
    default = newest.get(DEFAULT_IDENTITY)
    if default is not None and default.progress.checkpoint is not None:
        kept |= _known_to_apache(listed, default.progress.commit)
    return frozenset(kept)


def commits_kept_active(store: TimelineStore, timeline: Timeline) -> frozenset[str]:
    """Return the commits of an active timeline that archival must keep; see ``commits_to_keep``."""
    return commits_to_keep(active_commits(store, timeline), in_effect_on(store, timeline))


def read_table_progress(
    store: TimelineStore,
    timeline: Timeline,
    parse: Callable[[str], Checkpoint],
    *,
    skips_damaged: bool = False,
) -> TableProgress[Checkpoint]:
    """Return the newest progress of all streamers, which the next commit repeats.

    Args:
        store: the reader of the timeline's instants.
        timeline: the active timeline.
        parse: see ``decode_progress``.
        skips_damaged: see ``find_newest``.

    Raises:
        DamagedCheckpoint: a commit that may record the newest progress cannot be parsed.
        SnapshotChanged: the archive was rewritten meanwhile; call again.
        CorruptData: the archive is damaged.
    """
    is_in_effect = in_effect_on(store, timeline)
    commits = active_commits(store, timeline)
    found, as_of = find_newest(commits, parse, is_in_effect, skips_damaged=skips_damaged)
    if may_lack_archived(as_of, timeline):
        both = chain(active_commits(store, timeline), archived_commits(store))
        found, _ = find_newest(both, parse, is_in_effect, skips_damaged=skips_damaged)
    is_quiet = skips_damaged and not timeline.pending(*COMMITS)
    streamers = {identity: one.progress for identity, one in found.items()}
    return TableProgress(streamers, _known_up_to(timeline, is_quiet=is_quiet))


def progress_as_of_commits(
    store: TimelineStore,
    timeline: Timeline,
    parse: Callable[[str], Checkpoint],
    identity: str = DEFAULT_IDENTITY,
) -> list[tuple[Instant, StreamerProgress[Checkpoint]]]:
    """Return how far one streamer had read in the states of a table as of its active commits.

    As in time travel, the state as of a commit contains the commits that were requested up to it.
    So a compaction does not count with the progress of delta commits that were requested after it,
    although it may complete later, and may have copied their progress.

    Commits before the first known progress are omitted. Commits whose progress cannot be parsed are
    treated as if they recorded none.

    Args:
        store: the reader of the timeline's instants.
        timeline: the active timeline.
        parse: see ``decode_progress``.
        identity: the streamer.

    Returns:
        The commits by requested time, each with the newest progress that it or an earlier commit
        records.
    """
    is_in_effect = in_effect_on(store, timeline)
    ingest = [(i, extra) for i, extra in active_commits(store, timeline) if i.action.is_ingest]
    has_delta_commits = any(i.action is Action.DELTA_COMMIT for i, _ in ingest)
    newest: StreamerProgress[Checkpoint] | None = None
    found: list[tuple[Instant, StreamerProgress[Checkpoint]]] = []
    for instant, extra in sorted(ingest, key=lambda commit: commit[0].requested_at):
        recorded = _decode(instant, extra, has_delta_commits, parse, True).streamers.get(identity)
        if (
            recorded is not None
            and recorded.commit <= instant.requested_at
            and is_in_effect(recorded.commit)
        ):
            is_newer = newest is None or newest.known_at <= recorded.known_at
            newest = recorded if is_newer else newest
        if newest is not None:
            found.append((instant, newest))
    return found


def encode_table_progress(known: TableProgress[Checkpoint]) -> dict[str, str]:
    """Return the extra metadata that records the progress of all streamers."""
    streamers = {name: _to_json(progress) for name, progress in sorted(known.streamers.items())}
    text = json.dumps({"as_of": known.as_of, "streamers": streamers}, separators=(",", ":"))
    return {keys.CHECKPOINTS: text}


def repeat_table_progress(store: TimelineStore, timeline: Timeline) -> dict[str, str]:
    """Return the extra metadata for a commit that moves no streamer.

    Apache Hudi's own keys are not repeated, because a commit of Apache Hudi's streamer that is
    pending now may complete later. The streamer would then resume from the older copy in this
    commit. Raises what ``read_table_progress`` raises.
    """
    return encode_table_progress(read_table_progress(store, timeline, _as_text))


def may_lack_archived(as_of: str, timeline: Timeline) -> bool:
    """Return whether a commit may have been archived before another commit recorded its progress.

    lakemark's archival keeps such commits active, but the archival of other engines does not. After
    such an archival, the active commits may all have been written at the same time as the archived
    commit, so that none of them records its progress.
    """
    return timeline.has_history and "" < as_of < (timeline.start or "")


def active_commits(store: TimelineStore, timeline: Timeline) -> Commits:
    """Return the completed instants of an active timeline, for ``find_newest``."""
    return ((i, _ExtraMetadata(i, store.read_commit)) for i in timeline.completed())


def archived_commits(store: TimelineStore) -> Commits:
    """Return the completed instants of the archived timeline, for ``find_newest``."""
    archive = store.load_archived()

    def read(instant: Instant) -> CommitMetadata:
        return archive.read_commit(instant) or CommitMetadata()

    return ((i, _ExtraMetadata(i, read)) for i in archive.instants())


def in_effect_on(store: TimelineStore, timeline: Timeline) -> IsInEffect:
    """Return a function that returns whether a commit has not been undone.

    The commit itself must be looked up. Another commit with a copy of the checkpoint proves
    nothing. For example, a restore may undo the commit, but keep a compaction with the copy.
    """

    def is_in_effect(requested_at: str) -> bool:
        found = timeline.find(requested_at)
        if found is not None:
            return found.is_completed
        if timeline.is_archived(requested_at) or not timeline.has_history:
            return timeline.has_history
        return store.load_archived().find(requested_at) is not None

    return is_in_effect


def _known_up_to(timeline: Timeline, *, is_quiet: bool) -> str:
    """Return the completion time up to which a timeline contains all completed commits.

    In layout 1, a store may record completion times in whole seconds. Then other commits may still
    complete in the newest second, so the returned time is before that second.
    """
    completed = timeline.completed(*COMMITS)
    if not completed:
        return ""
    newest = completed[-1].completed_at or ""
    return newest[:_TO_THE_SECOND] if completed[-1].is_legacy and not is_quiet else newest


def _to_json(progress: StreamerProgress[Checkpoint]) -> dict[str, object]:
    checkpoint = progress.checkpoint
    values = {
        "commit": progress.commit,
        "known_at": progress.known_at,
        "topic_id": progress.topic_id,
        "obeyed": dict(progress.applied),
    }
    filled = {name: value for name, value in values.items() if value}
    return {"checkpoint": None if checkpoint is None else str(checkpoint), **filled}


def _known_to_apache(commits: Commits, newest: str) -> set[str]:
    """Return the last commit up to ``newest`` with a checkpoint under Apache Hudi's keys, if any.

    If there are delta commits, Apache Hudi's streamer looks only at these
    (``StreamerCheckpointUtils``). So a compaction that copied the checkpoint does not count.
    """
    ingest = [(i, extra) for i, extra in commits if i.is_completed and i.action.is_ingest]
    read_by_apache = [c for c in ingest if c[0].action is Action.DELTA_COMMIT] or ingest
    latest = sorted(read_by_apache, key=lambda c: c[0].requested_at, reverse=True)
    holders = (
        i.requested_at
        for i, extra in latest[:_KEPT_FOR_APACHE_WITHIN]
        if i.requested_at <= newest and checkpoint_key(extra) is not None
    )
    return set(islice(holders, 1))


def _as_text(text: str) -> str:
    if not text:
        message = "the checkpoint is empty"
        raise ValueError(message)
    return text


def _decode(
    instant: Instant,
    extra: Mapping[str, str],
    has_delta_commits: bool,
    parse: Callable[[str], Checkpoint],
    skips_damaged: bool,
) -> TableProgress[Checkpoint]:
    try:
        return decode_progress(extra, instant, _known_at(instant, has_delta_commits), parse)
    except DamagedCheckpoint:
        if not skips_damaged:
            raise
        return TableProgress()


def _known_at(instant: Instant, has_delta_commits: bool) -> str:
    """Return the time from which the progress under Apache Hudi's keys is valid.

    A table service is dated by its requested time, an ingest by its completion time. If rows arrive
    as delta commits, a ``commit`` is a completed compaction. If the table was later changed to
    copy-on-write, a ``commit`` may also be an ingest. The requested time of such an ingest can be
    used as well, because it is later than the last delta commit.
    """
    may_be_service = instant.action is Action.REPLACE_COMMIT or (
        has_delta_commits and instant.action is Action.COMMIT
    )
    if may_be_service or instant.completed_at is None:
        return instant.requested_at
    return instant.completed_at


def _parse_json(
    text: str | None, instant: Instant, parse: Callable[[str], Checkpoint]
) -> TableProgress[Checkpoint]:
    if text is None:
        return TableProgress()
    try:
        recorded = json.loads(text)
        entries = recorded["streamers"].items()
        streamers = {str(name): _from_json(entry, instant, parse) for name, entry in entries}
        return TableProgress(streamers, str(recorded["as_of"]))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DamagedCheckpoint(instant.requested_at, keys.CHECKPOINTS, text) from error


def _from_json(
    entry: Mapping[str, Any], instant: Instant, parse: Callable[[str], Checkpoint]
) -> StreamerProgress[Checkpoint]:
    text, commit = entry["checkpoint"], str(entry["commit"])
    is_own = commit == instant.requested_at
    # A commit that copied the entry unchanged did not add the entry's completion time. This time is
    # at least the requested time.
    known_at = instant.completed_at or "" if is_own else str(entry.get("known_at") or commit)
    return StreamerProgress(
        checkpoint=None if text is None else parse(text),
        commit=commit,
        known_at=known_at,
        topic_id=str(entry.get("topic_id", "")),
        applied={str(k): str(v) for k, v in entry.get("obeyed", {}).items()},
    )


class _ExtraMetadata(Mapping[str, str]):
    """The extra metadata of a commit, which is read when it is first needed."""

    def __init__(self, instant: Instant, read: Callable[[Instant], CommitMetadata]) -> None:
        self._instant, self._read = instant, read

    def __getitem__(self, key: str) -> str:
        return self._loaded[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaded)

    def __len__(self) -> int:
        return len(self._loaded)

    @cached_property
    def _loaded(self) -> Mapping[str, str]:
        return self._read(self._instant).extra_metadata
