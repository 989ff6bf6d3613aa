"""``.hoodie/hoodie.properties`` on storage, which one process at a time replaces.

Source: ``HoodieTableConfig.modify`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Callable

from lakemark.config.table_properties import BACKUP_PATH, PROPERTIES_PATH, TableProperties
from lakemark.errors import Refused, TableNotFound, WriteConflict
from lakemark.model.format_version import FormatVersion
from lakemark.storage.storage import AlreadyExists, NotFound, PreconditionFailed, Storage


def read_properties(storage: Storage) -> TableProperties:
    """The properties; a process of Apache Hudi that died while it replaced them left a backup.

    Raises:
        TableNotFound: there are none.
        CorruptData: they are damaged.
    """
    for path in (PROPERTIES_PATH, BACKUP_PATH):
        try:
            url = f"{storage.location.url.rstrip('/')}/{path}"
            return TableProperties.parse(storage.read(path), url)
        except NotFound:
            continue
    message = (
        f"no Hudi table at {storage.location.url} (no {PROPERTIES_PATH}); check the path: a "
        "table's folder holds .hoodie, and the first batch of a pipeline creates it"
    )
    raise TableNotFound(message)


def check_same_version(storage: Storage, version: FormatVersion) -> TableProperties:
    """The properties of a table that was opened before, if it is of the same version still.

    Raises:
        Refused: it was upgraded or downgraded: its timeline lies elsewhere, its files differ.
    """
    properties = read_properties(storage)
    if properties.version != version:
        message = (
            f"table {storage.location.url} was of version {version:d} when it was opened and is of "
            f"version {properties.version:d} now; start again"
        )
        raise Refused(message)
    return properties


def replace_properties(
    storage: Storage,
    before: TableProperties,
    after: TableProperties,
    check_lease: Callable[[], None] = lambda: None,
) -> None:
    """Write the properties of a table that is there; under the table's lock.

    They appear at once and whole, so no backup is written. A process that was paused must not write
    properties that were made from old ones: they could name a timeline that was deleted since. An
    object store compares in the same request. A local disk cannot, so they are compared right
    before they are written. What they name is durable before them, and they are before the caller
    deletes what they do not name any more.

    Args:
        storage: the table's root.
        before: those that ``after`` was made from.
        after: those to write.
        check_lease: raises when the lock was lost. It is called once the store's version is known:
            a writer that takes over the lock of a version change makes it another.

    Raises:
        WriteConflict: another process has changed them since.
    """
    storage.make_durable()
    version = _version_of(storage, before)
    check_lease()
    content = after.to_bytes()
    try:
        if version is None:
            storage.create(PROPERTIES_PATH, content)
        elif storage.supports_compare_and_swap:
            storage.replace(PROPERTIES_PATH, content, version)
        else:
            storage.put(PROPERTIES_PATH, content)
    except (AlreadyExists, PreconditionFailed) as error:
        raise _changed(storage) from error
    storage.make_durable()
    storage.delete([BACKUP_PATH])


def _version_of(storage: Storage, before: TableProperties) -> str | None:
    """The version of the stored properties, "" if it has none; None if only a backup is there.

    Apache Hudi deletes the properties before it writes new ones.
    """
    try:
        content, version = storage.read_versioned(PROPERTIES_PATH)
    except NotFound:
        content, version = storage.read(BACKUP_PATH), None
    else:
        version = version or ""
    if TableProperties.parse(content).to_bytes() != before.to_bytes():
        raise _changed(storage)
    return version


def _changed(storage: Storage) -> WriteConflict:
    path = f"{storage.location.url.rstrip('/')}/{PROPERTIES_PATH}"
    message = f"{path} was changed by another process meanwhile; start again"
    return WriteConflict(message)
