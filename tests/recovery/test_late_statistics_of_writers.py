"""A writer that keeps statistics notices that one of its own commits completed late.

The writer got no answer to the publication, and went on. Statistics that lacked a file of the late
commit would make queries skip its rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from lakemark.config.table_properties import TableType
from lakemark.errors import OutcomeUnknown, StorageUnavailable
from lakemark.operations.metadata_table import metadata_differences
from lakemark.storage import Storage
from tests.clocks import SharedClock, on_clock
from tests.storages.wrapped_storage import WrappedStorage
from tests.table_services import new_storage
from tests.tables import Row, commit, contents, keys_of_two_buckets, make, writer

CLOCK = SharedClock()


@dataclass
class LateCopies(WrappedStorage):
    """While it is slow, it gives no answer to the publication of a commit, and copies it later."""

    inner: Storage
    is_slow: bool = False
    copies: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__(self.inner)

    def publish(self, prepared: str, path: str) -> None:
        is_ours = path.endswith("commit") and not path.startswith(".hoodie/metadata/")
        if not (self.is_slow and is_ours):
            super().publish(prepared, path)
            return
        self.copies.setdefault(path, self.inner.read(prepared))
        raise StorageUnavailable(path)

    def land(self) -> None:
        (only,) = self.copies.items()
        self.inner.create(*only)


def test_statistics_cover_a_commit_whose_writer_went_on_before_it_appeared() -> None:
    storage, (small, large) = LateCopies(new_storage()), keys_of_two_buckets()
    make(storage, TableType.COPY_ON_WRITE)
    to = on_clock(writer(storage), CLOCK)
    commit(to, [Row(small, 1, 1)])
    storage.is_slow = True
    with pytest.raises(OutcomeUnknown):
        commit(to, [Row(large, 9, 9)])
    storage.is_slow = False
    commit(to, [Row(small, 2, 2)])
    storage.land()
    commit(to, [Row(small, 3, 3)])
    assert contents(storage) == {small: (3, 3), large: (9, 9)}
    assert metadata_differences(writer(storage).table) == []
