"""Reads and replaces ``.hoodie/hoodie.properties``. Only one process at a time replaces the file.

Source: ``HoodieTableConfig.modify`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Callable

from lakemark.config.table_properties import BACKUP_PATH, PROPERTIES_PATH, TableProperties
from lakemark.errors import CorruptData, Refused, TableNotFound, WriteConflict
from lakemark.model.format_version import FormatVersion
from lakemark.storage.storage import AlreadyExists, NotFound, PreconditionFailed, Storage


def read_properties(storage: Storage) -> TableProperties:
    """Read the table's properties, or their backup.

    Apache Hudi replaces the properties in several steps: it writes the backup, deletes the
    properties, writes the new ones, and deletes the backup. So the properties may be missing or
    incomplete while there is a backup, also if its process died. If neither can be read, the
    replacement may have ended meanwhile, and the properties are read again.

    Raises:
        TableNotFound: neither the properties nor the backup exists.
        CorruptData: the properties are damaged, and there is no intact backup.
    """
    damage: CorruptData | None = None
    for path in (PROPERTIES_PATH, BACKUP_PATH, PROPERTIES_PATH):
        try:
            url = f"{storage.location.url.rstrip('/')}/{path}"
            return TableProperties.parse(storage.read(path), url)
        except NotFound:
            continue
        except CorruptData as error:
            damage = damage or error
    if damage is not None:
        raise damage
    message = (
        f"no Hudi table at {storage.location.url} (no {PROPERTIES_PATH}); check the path: a "
        "table's folder contains .hoodie, which lakemark.create or the first batch creates"
    )
    raise TableNotFound(message)


def check_same_version(storage: Storage, version: FormatVersion) -> TableProperties:
    """Read the properties of a table that was opened before, and check the table's version.

    Raises:
        Refused: the table was upgraded or downgraded, so its timeline and file formats differ.
    """
    properties = read_properties(storage)
    if properties.version != version:
        message = (
            f"table {storage.location.url} had version {version:d} when it was opened, and has "
            f"version {properties.version:d} now; start again"
        )
        raise Refused(message)
    return properties


def replace_properties(
    storage: Storage,
    before: TableProperties,
    after: TableProperties,
    check_lease: Callable[[], None],
) -> None:
    """Replace the properties of an existing table. The caller holds the table's lock.

    The file is replaced atomically, so no backup is written. A paused process may hold outdated
    properties. It must not write them, because they could name a timeline that was deleted in the
    meantime. So the stored properties are compared with ``before``. An object store compares the
    file's version in the same request. On a local disk, the properties are compared right before
    they are written.

    Files that the new properties name are made durable before the properties are written. When this
    function returns, the new properties are durable, too. So the caller may then delete files that
    only the old properties name.

    Args:
        storage: the storage of the table's root.
        before: the properties from which ``after`` is derived.
        after: the properties to write.
        check_lease: raises if the lock was lost. It is called after the file's version was read,
            because a writer that takes over the lock may change this version (see
            ``withdraw_properties``).

    Raises:
        WriteConflict: another process has changed the properties in the meantime.
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
    """Return the store's version of the properties file; None if only a backup exists.

    Only a backup may exist, because Apache Hudi deletes the properties before it writes new ones.
    The version is "" if the store has no versions.
    """
    try:
        content, version = storage.read_versioned(PROPERTIES_PATH)
        version = version or ""
    except NotFound:
        try:
            content, version = storage.read(BACKUP_PATH), None
        except NotFound as error:  # Apache Hudi has just written the new properties
            raise _changed(storage) from error
    if TableProperties.parse(content).to_bytes() != before.to_bytes():
        raise _changed(storage)
    return version


def _changed(storage: Storage) -> WriteConflict:
    path = f"{storage.location.url.rstrip('/')}/{PROPERTIES_PATH}"
    message = f"{path} was changed by another process in the meantime; start again"
    return WriteConflict(message)
