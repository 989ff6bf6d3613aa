"""The table state that an open table caches: properties, timeline, file slices, metadata table.

The cached state is that of one moment: the last load, or the last change that this process made. A
change by this process updates the cache without listing the table. If another writer has also
changed the table, the file slices are loaded again when they are needed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TypeVar

from lakemark.config.table_properties import TableProperties
from lakemark.errors import CorruptData, HudiError, SnapshotChanged
from lakemark.metadata.metadata_file_lister import MetadataFileLister
from lakemark.metadata.metadata_table import MetadataTable
from lakemark.metadata.metadata_table_opener import MetadataTableOpener
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.model.action import Action
from lakemark.model.clean_plan import CleanPlan
from lakemark.model.clustering_plan import ClusteringPlan
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.compaction_plan import CompactionPlan
from lakemark.model.instant import Instant
from lakemark.storage import Storage
from lakemark.storage.properties_file import check_same_version, read_properties
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.view.file_lister import FileLister, StorageFileLister
from lakemark.view.file_system_view import FileSystemView
from lakemark.view.partial_views import PartialViews
from lakemark.view.view_loader import check_no_deletions, load_context, load_view

T = TypeVar("T")

#: How often loading a view is tried while other writers clean or roll back at the same time.
_VIEW_ATTEMPTS = 3

_log = logging.getLogger(__name__)


class CachedSnapshot:
    """The cached properties, timeline, view and metadata table of one open table.

    Attributes:
        properties: the table's properties as they were last read.
    """

    def __init__(
        self,
        storage: Storage,
        properties: TableProperties,
        store: TimelineStore,
        opener: MetadataTableOpener,
    ) -> None:
        """Create an empty cache; everything is loaded when it is first needed.

        Args:
            storage: the storage of the table's root.
            properties: the table's properties.
            store: the reader and writer of the table's timeline.
            opener: opens the table's metadata table.
        """
        self.properties = properties
        self._storage, self._store, self._opener = storage, store, opener
        self._timeline: Timeline | None = None
        self._view: FileSystemView | None = None
        self._parts: PartialViews | None = None
        self._metadata: MetadataTable | None = None

    @property
    def timeline(self) -> Timeline:
        """The active timeline."""
        if self._timeline is None:
            self._timeline = self._store.load()
        return self._timeline

    @property
    def loaded_timeline(self) -> Timeline | None:
        """The active timeline if it is in memory, else None. Any thread may use this property."""
        return self._timeline

    @property
    def loaded_view(self) -> FileSystemView | None:
        """The view if it is in memory, else None. Any thread may use this property."""
        return self._view

    def view(self) -> FileSystemView:
        """Return the file slices as of ``timeline``. The table is listed only at the first call.

        Raises:
            SnapshotChanged: other writers cleaned or rolled back during each attempt.
        """
        if self._view is None:
            self._view = self._load(self._list_view)
        return self._view

    def partial_views(self) -> PartialViews | None:
        """Return views of parts of the table as of ``timeline``, which list only those parts.

        The result is None if the whole view is in memory, or if the table has no metadata table
        that may be used. It is also None in table version 6: there, a log of the metadata table may
        be deleted by a rollback and written again under the same name, so partitions that are
        listed later could belong to another state. In these cases the caller uses ``view``.

        Raises:
            SnapshotChanged: as for ``view``.
        """
        are_reused = self._store.version.logs_name_their_slice
        if self._view is not None or are_reused or not self.properties.metadata_partitions:
            return None
        if self._parts is None:
            self._parts = self._load(self._open_parts)
        return self._parts

    def metadata_with(self, kind: PartitionKind) -> MetadataTable | None:
        """Return the metadata table if it is up to date and has the partition ``kind``, else None.

        Without the metadata table, the caller lists storage and cannot skip files by statistics or
        indexes.
        """
        if self._metadata is None:
            timeline = self.timeline  # loaded first, because its instants show the time zone
            self._metadata = self._opener.open(self.properties, timeline, self._store.clock)
        if kind.describes_latest_rows:
            self._check_for_later_commits()
        metadata = self._metadata
        return metadata if metadata is not None and metadata.usable_partitions(kind) else None

    def _check_for_later_commits(self) -> None:
        """Find out whether the metadata table has commits that ``timeline`` lacks, if that is open.

        The timeline is loaded again only if the metadata table was compacted, or if an index was
        built, after ``timeline`` was loaded. If nothing but cleans has completed since, the base
        files contain no later commit.
        """
        metadata = self._metadata
        if metadata is None or not metadata.may_have_later_commits:
            return
        known = set(self.timeline.instants)
        completed = (i for i in self._store.load().completed() if i.action is not Action.CLEAN)
        if known.issuperset(completed):
            self._metadata = replace(metadata, may_have_later_commits=False)

    def refresh(self, loaded: Timeline | None = None) -> None:
        """Load the timeline; keep the view only if the timeline has not changed.

        Args:
            loaded: the timeline, if the caller has just loaded it; None to load the timeline.

        Raises:
            Refused: the table was upgraded or downgraded since it was opened.
        """
        timeline = loaded or self._store.load()
        if self._timeline is None or timeline.instants != self._timeline.instants:
            # Another process may have created or dropped an index.
            self.properties = check_same_version(self._storage, self._store.version)
            self._timeline, self._view, self._parts = timeline, None, None
            self._metadata = None  # its indexes describe the older timeline

    def reload_properties(self) -> None:
        """Read the properties again, because another process may have dropped an index.

        The timeline does not show this.

        Raises:
            Refused: as for ``refresh``.
        """
        self.properties = check_same_version(self._storage, self._store.version)

    def forget_metadata(self) -> bool:
        """Drop everything that is loaded if it depends on an open metadata table.

        It is loaded again when it is needed.

        Returns:
            Whether a metadata table was open.
        """
        is_open = self._parts is not None or self._metadata is not None
        if is_open:
            self._timeline = self._view = self._parts = self._metadata = None
        return is_open

    def forget_metadata_table(self, properties: TableProperties) -> None:
        """Drop the cached metadata table and view, after the metadata table was rebuilt or removed.

        Args:
            properties: the table's new properties.
        """
        self.properties = properties
        self._metadata = self._view = self._parts = None

    def carry_commit(self, instant: Instant, metadata: CommitMetadata, timeline: Timeline) -> None:
        """Add our own commit to the view.

        Args:
            instant: the completed instant.
            metadata: the metadata of the commit.
            timeline: the timeline, which contains the commit.
        """
        known = set(self.timeline.instants)
        metadata = metadata.as_stored()
        self._store.note_commit(instant, metadata)
        others = [
            i
            for i in timeline.instants
            if i.requested_at != instant.requested_at and i not in known
        ]
        view = self._view
        self._timeline = timeline
        self._view = self._parts = self._metadata = None
        if view is not None and not others:
            self._carry_view(lambda: view.with_commit(instant, metadata))

    def carry_compaction_request(self, requested: Instant, plan: CompactionPlan) -> None:
        """Add a compaction that we requested to the view."""
        self._timeline = self.timeline.with_instant(requested)
        view, self._view, self._parts = self._view, None, None
        if view is not None:
            self._carry_view(lambda: view.with_compaction_plan(requested.requested_at, plan))

    def carry_clustering_request(self, requested: Instant, plan: ClusteringPlan) -> None:
        """Add a clustering that we requested to the view."""
        self._timeline = self.timeline.with_instant(requested)
        view, self._view, self._parts = self._view, None, None
        if view is not None:
            self._carry_view(lambda: view.with_clustering_plan(requested.requested_at, plan))

    def carry_start(self, inflight: Instant) -> None:
        """Add to the timeline the inflight instant of a plan that we have started to execute."""
        self._timeline = self.timeline.with_instant(inflight)

    def forget_files(self) -> None:
        """Drop the view, because files were deleted although the timeline stays the same.

        An attempt at a planned service deletes the files of an attempt that died before.
        """
        self._view = self._parts = None

    def carry_clean(self, instant: Instant, plan: CleanPlan, timeline: Timeline) -> None:
        """Remove the files that our own clean deleted from the view."""
        self._carry_deletion(plan.paths, timeline, instant.requested_at)

    def carry_archival(self, deleted: Collection[str], timeline: Timeline) -> None:
        """Remove archived instants from the timeline, and deleted files from the view.

        Args:
            deleted: the paths of files that our own archival deleted.
            timeline: the timeline without the archived instants.
        """
        self._carry_deletion(deleted, timeline)

    def _carry_deletion(self, paths: Collection[str], timeline: Timeline, own: str = "") -> None:
        known, view = set(self.timeline.instants), self._view
        others = [i for i in timeline.instants if i not in known and i.requested_at != own]
        self._timeline, self._view, self._parts, self._metadata = timeline, None, None, None
        if view is not None and not others:
            self._carry_view(lambda: replace(view, timeline=timeline).without_files(paths))

    def _carry_view(self, change: Callable[[], FileSystemView]) -> None:
        """Set the view that results from our own change. After an error, it is loaded again later.

        The change is already published, so an error here must not reach the caller. For example,
        the archive may be unreadable at this moment, and only it shows when a late instant
        completed.
        """
        try:
            self._view = change()
        except HudiError as error:
            _log.warning("the file slices are loaded again, because of %s", error)

    def _load(self, read: Callable[[], T]) -> T:
        """Read the file slices as of ``timeline``; load the timeline again if it has changed."""
        for _ in range(_VIEW_ATTEMPTS - 1):
            try:
                return read()
            except SnapshotChanged:
                pass
            except CorruptData:
                # Another process may have rebuilt the metadata table since its folders were listed.
                # In table version 6, the old and the new first files have the same names.
                if self._metadata is None:
                    raise
            self._timeline, self._parts = self._store.load(), None
        return read()

    def _list_view(self) -> FileSystemView:
        """Return the view as of ``timeline``, from the metadata table if there is one."""
        if self._parts is not None:
            return self._parts.whole()
        timeline, metadata = self.timeline, self._open_metadata_table()
        lister: FileLister = (
            StorageFileLister(self._storage) if metadata is None else MetadataFileLister(metadata)
        )
        return load_view(self._store, timeline, lister, self._store.version)

    def _open_parts(self) -> PartialViews | None:
        """Return views of parts of the table; None if the metadata table may not be used."""
        timeline, metadata = self.timeline, self._open_metadata_table()
        if metadata is None:
            return None
        context = load_context(self._store, timeline, self._store.version)
        lister = MetadataFileLister(metadata)
        parts = PartialViews(lister, lister.list_partitions(), context)
        check_no_deletions(timeline, self._store.load())
        return parts

    def _open_metadata_table(self) -> MetadataTable | None:
        """Open the metadata table as of ``timeline``; None if it may not list the table's files.

        The properties are read again, because another writer may have built or dropped the metadata
        table.
        """
        self.properties, self._metadata = read_properties(self._storage), None
        return self.metadata_with(PartitionKind.FILES)
