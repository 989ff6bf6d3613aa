"""A writer in another process that writes the files of a commit and never publishes them.

Each process imports only this small module.
"""

from __future__ import annotations

import time
from multiprocessing.connection import Connection

from lakemark.storage import StorageLocation, open_storage
from lakemark.transaction.multi_writer import MultiWriter
from tests.tables import Row, write_files
from tests.writers import shared_writer


def write_and_wait(
    location: StorageLocation, sharing: MultiWriter, keys: list[str], pipe: Connection
) -> None:
    """Write files, send the instant, and publish nothing until the process is killed."""
    to = shared_writer(open_storage(location), multi_writer=sharing, has_metadata=False)
    write_files(to, [Row(key, 1, 1) for key in keys])
    pipe.send(to.pending_instant)
    time.sleep(600)
