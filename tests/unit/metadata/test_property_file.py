"""The properties of a table survive a writer that dies while it replaces them."""

from __future__ import annotations

import pytest

from table.config.table_properties import BACKUP_PATH, PROPERTIES_PATH
from table.errors import TableNotFound
from table.metadata.property_file import read_properties
from tests.upkeep import make_plain, new_storage


def test_properties_are_read_from_the_backup_if_they_are_gone() -> None:
    storage = new_storage()
    make_plain(storage)
    properties = read_properties(storage)
    storage.put(BACKUP_PATH, storage.read(PROPERTIES_PATH))
    storage.delete([PROPERTIES_PATH])
    assert read_properties(storage) == properties

    storage.delete([BACKUP_PATH])
    with pytest.raises(TableNotFound):
        read_properties(storage)
