"""DuckDB, restricted to what is registered on a connection, and with a limit of its memory."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Final

from lakemark.errors import InvalidConfig
from lakemark.execution.limits import usable_memory_bytes, usable_threads
from lakemark.extras import install_command
from lakemark.storage.scratch import scratch_folder

#: A query reads no files, no extensions and no variables of Python, and cannot change this. Times
#: without a zone are in UTC, as in conditions (``lakemark.read.where``).
_SETTINGS: Final = (
    "timezone = 'UTC'",
    "autoinstall_known_extensions = false",
    "autoload_known_extensions = false",
    "python_enable_replacements = false",
    "enable_external_access = false",
    "lock_configuration = true",
)
_MIN_MEMORY_BYTES: Final = 256 * 2**20
#: A thread needs this memory for a sort, even if it spills all other rows.
_THREAD_MEMORY_BYTES: Final = 128 * 2**20


def connect(*settings: str) -> Any:
    """Open a database in memory that has no access to files and to the network.

    Args:
        settings: further settings, as ``name = value``.

    Raises:
        ImportError: DuckDB is not installed.
    """
    import duckdb

    connection = duckdb.connect(":memory:")
    for setting in (*settings, *_SETTINGS):
        connection.execute(f"set {setting}")
    return connection


def open_connection(resources: ExitStack) -> Any:
    """Open a connection that may use a quarter of this machine's memory, and spills to ``TMPDIR``.

    Args:
        resources: gets what closes the connection, and deletes what it has spilled.

    Raises:
        InvalidConfig: DuckDB is not installed.
        DiskFull: no temporary folder can be written.
    """
    folder = resources.enter_context(scratch_folder("sql"))
    memory_bytes = max(_MIN_MEMORY_BYTES, usable_memory_bytes() // 4)
    threads = min(usable_threads(), max(1, memory_bytes // _THREAD_MEMORY_BYTES))
    try:
        connection = connect(
            f"threads = {threads}",
            f"memory_limit = '{memory_bytes}B'",
            f"temp_directory = {text_literal(str(folder))}",
        )
    except ImportError:
        message = f"SQL needs DuckDB: {install_command('sql')}"
        raise InvalidConfig(message) from None
    resources.callback(connection.close)
    return connection


def text_literal(text: str) -> str:
    """Return a text as a literal of SQL."""
    doubled = text.replace("'", "''")
    return f"'{doubled}'"


def quoted_name(name: str) -> str:
    """Return a name as an identifier of SQL."""
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
