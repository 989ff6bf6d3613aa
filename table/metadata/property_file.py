"""``.hoodie/hoodie.properties`` on storage; a writer that dies while it replaces them loses none.

Source: ``HoodieTableConfig.modify`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from table.config.table_properties import BACKUP_PATH, PROPERTIES_PATH, TableProperties
from table.errors import Refused, TableNotFound
from table.model.format_version import FormatVersion
from table.storage.storage import NotFound, Storage


def read_properties(storage: Storage) -> TableProperties:
    """The properties; a writer that died while it replaced them left a backup.

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


def replace_properties(storage: Storage, properties: TableProperties) -> None:
    """Write the properties of a table that is there; under the table's lock."""
    content = properties.to_bytes()
    storage.put(BACKUP_PATH, content)
    storage.put(PROPERTIES_PATH, content)
    storage.delete([BACKUP_PATH])
