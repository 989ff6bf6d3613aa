"""Loads a view of a table, even if other writers change the table at the same time.

The view is a consistent snapshot; if that is impossible, an error is raised. The timeline is loaded
first, and files are listed afterwards. So no file of a commit that completes in between is visible.

Files may also be deleted in between. A clean deletes only files that were not the newest when it
was planned. So a clean that is already on the loaded timeline deletes no file of the view. But a
newer clean, a rollback or a restore may delete files of the view. Therefore the timeline is loaded
again after the listing, and compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

from lakemark.errors import SnapshotChanged
from lakemark.model.action import Action
from lakemark.model.clustering_plan import ClusteringPlan
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.compaction_plan import CompactionPlan
from lakemark.model.format_version import FormatVersion
from lakemark.storage.storage import NotFound
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.view.file_lister import DataFile, FileLister, StorageFileLister
from lakemark.view.file_system_view import FileSystemView
from lakemark.view.late_files import find_late_instants, without_late_files
from lakemark.view.lost_attempts import find_lost_attempts, without_paths
from lakemark.view.resized_logs import find_writers, unfinished

_DELETING = (Action.CLEAN, Action.RESTORE)
_MAY_CLUSTER = (Action.CLUSTERING, Action.REPLACE_COMMIT)


def load_view(
    store: TimelineStore, timeline: Timeline, lister: FileLister, version: FormatVersion
) -> FileSystemView:
    """Load a view of the table as of a timeline.

    Args:
        store: reads the timeline's instants.
        timeline: the active timeline, which must have been loaded just before.
        lister: lists the data files.
        version: version of the table.

    Raises:
        SnapshotChanged: files of the snapshot were deleted meanwhile. Load the timeline again, and
            call this function again.
        CorruptData: an instant or the archive violates the format.
    """
    if isinstance(lister, StorageFileLister):
        files = list_without_rolled_back(store, timeline, lister, version)
    else:
        files = lister.list_files()  # the metadata table lists only files of commits
    view = load_context(store, timeline, version).view_of(files)
    check_no_deletions(timeline, store.load())
    return view


@dataclass(frozen=True)
class ViewContext:
    """A timeline, and the contents of those instants that decide to which slice a file belongs.

    Attributes:
        timeline: the active timeline.
        compactions: plans of the pending compactions, by instant.
        replacements: metadata of the completed replace commits, by instant.
        clusterings: plans of the pending clusterings, by instant.
        version: version of the table.
    """

    timeline: Timeline
    compactions: Mapping[str, CompactionPlan]
    replacements: Mapping[str, CommitMetadata]
    clusterings: Mapping[str, ClusteringPlan]
    version: FormatVersion

    def view_of(self, files: Mapping[str, Iterable[DataFile]]) -> FileSystemView:
        """Return the view of these files; see ``FileSystemView.of``."""
        return FileSystemView.of(
            files,
            self.timeline,
            self.compactions,
            self.replacements,
            self.clusterings,
            self.version,
        )


def load_context(store: TimelineStore, timeline: Timeline, version: FormatVersion) -> ViewContext:
    """Read the contents of those instants that decide to which slice a file belongs.

    Errors as for ``load_view``.
    """
    try:
        return ViewContext(
            timeline,
            {
                i.requested_at: store.read_pending_compaction(i)
                for i in timeline.pending(Action.COMPACTION)
            },
            {
                i.requested_at: store.read_commit(i)
                for i in timeline.completed(Action.REPLACE_COMMIT)
            },
            {
                i.requested_at: plan
                for i in timeline.pending(*_MAY_CLUSTER)
                if (plan := store.read_clustering_plan(i)) is not None
            },
            version,
        )
    except NotFound as error:
        message = f"an instant was removed while the table was listed: {error}; load it again"
        raise SnapshotChanged(message) from error


def list_without_rolled_back(
    store: TimelineStore, timeline: Timeline, lister: StorageFileLister, version: FormatVersion
) -> Mapping[str, list[DataFile]]:
    """Return data files by partition path, without files that only seem to be committed.

    These are late files, files of lost attempts, and logs that unfinished commits wrote for a
    resize; see ``late_files``, ``lost_attempts`` and ``resized_logs``.

    Raises:
        SnapshotChanged: the archive was rewritten meanwhile; load the timeline again.
    """
    files = lister.list_files()
    written_at = lister.written_at()
    all_files = chain(*files.values())
    writers = find_writers(lister.storage, all_files, timeline, version, store.writers_of_logs)
    of_logs = {name: written_at[log.name.instant] for log, some in writers.items() for name in some}
    late = find_late_instants(store, timeline, {**of_logs, **written_at})
    files = without_late_files(files, late, version) if late else files
    lost = find_lost_attempts(store, timeline, files) | unfinished(writers, timeline, late)
    return without_paths(files, lost) if lost else files


def check_no_deletions(before: Timeline, after: Timeline) -> None:
    """Check that no visible file can have been deleted between loading two timelines.

    Args:
        before: the timeline that was loaded first.
        after: the timeline that was loaded later.

    Raises:
        SnapshotChanged: a file may have been deleted.
    """
    known = {(i.requested_at, i.action) for i in before.instants}
    for instant in after.instants:
        if instant.action in _DELETING and (instant.requested_at, instant.action) not in known:
            message = f"{instant} began while the table was listed; load it again"
            raise SnapshotChanged(message)
    for instant in before.completed():
        if instant.action.is_write and not after.is_committed(instant.requested_at):
            message = f"{instant} was rolled back while the table was listed; load it again"
            raise SnapshotChanged(message)
