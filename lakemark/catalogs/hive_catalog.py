"""The catalog ``hive``: a Hive metastore of version 2.3 or later, called by Thrift.

The metastore is called without authentication, or with the user's name (``set_ugi``), which a
metastore trusts if it does not require Kerberos. It looks for the folder of a new table, so it
must be able to reach the table's storage.

Source: ``HMSDDLExecutor`` and ``HoodieHiveSyncClient`` of Apache Hudi.
"""

from __future__ import annotations

import getpass
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pymetastore.hive_metastore import ThriftHiveMetastore, ttypes
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TApplicationException, TException
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TTransportException

from lakemark.catalogs.catalog import (
    CatalogChanged,
    CatalogColumn,
    CatalogPartition,
    CatalogRefused,
    CatalogTable,
    CatalogUnavailable,
)
from lakemark.catalogs.hive_settings import HiveSettings
from lakemark.keygen.partition_path import escape

# Thrift also raises the errors that it logs. Without a handler, Python would print them to stderr.
logging.getLogger("thrift").addHandler(logging.NullHandler())

T = TypeVar("T")

#: The partitions of one request, so that neither the request nor its answer is large.
_BATCH = 500

#: The longest text of an error in a message, because it may contain a stack trace of Java.
_LONGEST_TEXT = 500

#: The metastore would list all files of a table to count them.
_NO_STATISTICS = {"DO_NOT_UPDATE_STATS": "true"}
_CASCADE = {"CASCADE": "true", **_NO_STATISTICS}

#: Errors of the metastore that another attempt does not correct.
_REFUSING = (
    ttypes.AlreadyExistsException,
    ttypes.InvalidObjectException,
    ttypes.InvalidOperationException,
    ttypes.InvalidInputException,
    ttypes.NoSuchObjectException,
    ttypes.UnknownDBException,
    TApplicationException,
)


class HiveCatalog:
    """One database of a Hive metastore.

    Attributes:
        name: the database and the servers, for messages.

    Args:
        settings: the servers.
        database: the name of the database.

    Raises:
        CatalogUnavailable: no server answers.
    """

    def __init__(self, settings: HiveSettings, database: str) -> None:
        self.name = f"database {database} of Hive at {settings}"
        self._settings, self._database = settings, database.lower()
        self._transport, self._client = self._connect()

    def has_database(self) -> bool:
        """Return whether the database exists."""
        try:
            self._call("get_database", self._database)
        except _Missing:
            return False
        return True

    def create_database(self) -> None:
        """Create the database in the metastore's default folder; do nothing if it exists."""
        database = ttypes.Database(name=self._database, description="created by lakemark")
        try:
            self._call("create_database", database)
        except _Exists:
            return

    def find_table(self, table: str) -> CatalogTable | None:
        """Return what the metastore stores about a table; None if it does not know the table."""
        stored = self._find(table)
        if stored is None:
            return None
        storage, serde = stored.sd, stored.sd.serdeInfo
        return CatalogTable(
            stored.tableName,
            storage.location or "",
            _from_fields(storage.cols),
            _from_fields(stored.partitionKeys),
            storage.inputFormat or "",
            storage.outputFormat or "",
            serde.serializationLib or "",
            serde.parameters or {},
            stored.parameters or {},
        )

    def create_table(self, table: CatalogTable) -> None:
        """Create an external table."""
        created = ttypes.Table(
            tableName=table.name,
            dbName=self._database,
            owner=self._user,
            createTime=int(time.time()),
            lastAccessTime=0,
            retention=0,
            sd=_storage(table, table.location),
            partitionKeys=_to_fields(table.partition_columns),
            parameters=dict(table.parameters),
            tableType="EXTERNAL_TABLE",
        )
        context = ttypes.EnvironmentContext(_NO_STATISTICS)
        try:
            self._call("create_table_with_environment_context", created, context)
        except _Exists as error:
            raise CatalogChanged.of(table.name, self.name, "created") from error

    def alter_table(self, table: CatalogTable) -> None:
        """Replace the columns and formats of a table, also in its partitions."""
        stored = self._find(table.name)
        if stored is None:
            raise CatalogChanged.of(table.name, self.name, "dropped")
        serde, storage = stored.sd.serdeInfo, stored.sd
        properties = {**(serde.parameters or {}), **table.serde_properties}
        changes_columns = _from_fields(storage.cols) != table.columns
        formats = (storage.inputFormat, storage.outputFormat, serde.serializationLib)
        changes_formats = formats != (table.input_format, table.output_format, table.serde)
        storage.cols = _to_fields(table.columns, _comments(storage.cols))
        storage.inputFormat, storage.outputFormat = table.input_format, table.output_format
        storage.serdeInfo = ttypes.SerDeInfo(serde.name, table.serde, properties)
        stored.parameters = {**(stored.parameters or {}), **table.parameters}
        cascades = changes_columns and bool(table.partition_columns)
        context = ttypes.EnvironmentContext(_CASCADE if cascades else _NO_STATISTICS)
        if changes_formats and table.partition_columns:  # the metastore cascades only columns
            # The partitions come first, so that a sync that fails here is repeated.
            self.move_partitions(table, self.list_partitions(table.name))
        self._call(
            "alter_table_with_environment_context", self._database, table.name, stored, context
        )

    def list_partitions(self, table: str) -> list[CatalogPartition]:
        """Return all partitions of a table."""
        names = self._call("get_partition_names", self._database, table, -1)
        return self._partitions(table, names)

    def find_partitions(
        self, table: CatalogTable, values: Sequence[tuple[str, ...]]
    ) -> list[CatalogPartition]:
        """Return those partitions of a table that exist, of the partitions with these values."""
        return self._partitions(table.name, [_partition_name(table, one) for one in values])

    def add_partitions(self, table: CatalogTable, partitions: Sequence[CatalogPartition]) -> None:
        """Add partitions; those that exist already are skipped."""
        for batch in _batches(partitions):
            request = ttypes.AddPartitionsRequest(
                dbName=self._database,
                tblName=table.name,
                parts=[self._stored(table, one) for one in batch],
                ifNotExists=True,
                needResult=False,
            )
            self._call("add_partitions_req", request)

    def move_partitions(self, table: CatalogTable, partitions: Sequence[CatalogPartition]) -> None:
        """Change the locations of existing partitions."""
        context = ttypes.EnvironmentContext(_NO_STATISTICS)
        for batch in _batches(partitions):
            parts = [self._stored(table, one) for one in batch]
            self._call(
                "alter_partitions_with_environment_context",
                self._database,
                table.name,
                parts,
                context,
            )

    def drop_partitions(self, table: CatalogTable, partitions: Sequence[CatalogPartition]) -> None:
        """Remove partitions from the metastore, and keep their files."""
        for one in partitions:
            try:
                self._call("drop_partition", self._database, table.name, list(one.values), False)
            except _Missing:
                continue

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    def _connect(self) -> tuple[TBufferedTransport, Any]:
        """Connect to the first server that answers."""
        failure: Exception | None = None
        for host, port in self._settings.servers:
            socket = TSocket(host, port)
            socket.setTimeout(self._settings.timeout_s * 1000)
            transport = TBufferedTransport(socket)
            try:
                transport.open()
                client = ThriftHiveMetastore.Client(TBinaryProtocol(transport))
                client.set_ugi(self._user, [])
            except (TException, OSError) as error:
                transport.close()
                failure = error
                continue
            return transport, client
        message = f"{self.name} does not answer: {_text(failure)}"
        raise CatalogUnavailable(message) from failure

    @property
    def _user(self) -> str:
        try:
            return self._settings.user or getpass.getuser()
        except (KeyError, OSError):  # a container may run as a user without a name
            return "lakemark"

    def _find(self, table: str) -> Any:
        """Return the metastore's table; None if it does not know the table."""
        request = ttypes.GetTableRequest(dbName=self._database, tblName=table)
        try:
            return self._call("get_table_req", request).table
        except _Missing:
            return None

    def _partitions(self, table: str, names: Sequence[str]) -> list[CatalogPartition]:
        found: list[CatalogPartition] = []
        for batch in _batches(names):
            stored = self._call("get_partitions_by_names", self._database, table, list(batch))
            found += [CatalogPartition(tuple(one.values), one.sd.location or "") for one in stored]
        return found

    def _stored(self, table: CatalogTable, partition: CatalogPartition) -> Any:
        return ttypes.Partition(
            values=list(partition.values),
            dbName=self._database,
            tableName=table.name,
            createTime=int(time.time()),
            lastAccessTime=0,
            sd=_storage(table, partition.location),
            parameters={},
        )

    def _call(self, operation: str, *arguments: Any) -> Any:
        """Send a request, and return its answer.

        Raises:
            CatalogUnavailable: the metastore does not answer, or fails.
            CatalogRefused: the metastore refuses the request.
        """
        try:
            return getattr(self._client, operation)(*arguments)
        except ttypes.NoSuchObjectException as error:
            message = f"{self.name}: {_text(error)}"
            raise _Missing(message) from error
        except ttypes.AlreadyExistsException as error:
            message = f"{self.name}: {_text(error)}"
            raise _Exists(message) from error
        except _REFUSING as error:
            message = f"{self.name} refuses the change: {_text(error)}"
            raise CatalogRefused(message) from error
        except (TTransportException, OSError) as error:
            message = f"{self.name} does not answer: {_text(error)}"
            raise CatalogUnavailable(message) from error
        except TException as error:
            message = f"{self.name} failed: {_text(error)}"
            raise CatalogUnavailable(message) from error


class _Missing(CatalogRefused):
    """The metastore does not have the object."""


class _Exists(CatalogRefused):
    """The metastore already has the object."""


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), _BATCH):
        yield items[start : start + _BATCH]


def _partition_name(table: CatalogTable, values: Sequence[str]) -> str:
    """Return the name by which the metastore finds a partition, ``region=eu/day=2026-01-02``."""
    pairs = zip(table.partition_columns, values, strict=True)
    return "/".join(f"{column.name}={escape(value)}" for column, value in pairs)


def _storage(table: CatalogTable, location: str) -> Any:
    properties: Mapping[str, str] = table.serde_properties
    return ttypes.StorageDescriptor(
        cols=_to_fields(table.columns),
        location=location,
        inputFormat=table.input_format,
        outputFormat=table.output_format,
        compressed=False,
        numBuckets=-1,
        serdeInfo=ttypes.SerDeInfo(None, table.serde, dict(properties)),
        bucketCols=[],
        sortCols=[],
        parameters={},
        skewedInfo=ttypes.SkewedInfo([], [], {}),
        storedAsSubDirectories=False,
    )


def _to_fields(
    columns: Sequence[CatalogColumn], comments: Mapping[str, str] | None = None
) -> list[Any]:
    known = comments or {}
    return [ttypes.FieldSchema(one.name, one.type, known.get(one.name, "")) for one in columns]


def _comments(fields: Sequence[Any] | None) -> dict[str, str]:
    return {one.name: one.comment for one in fields or () if one.comment}


def _from_fields(fields: Sequence[Any] | None) -> tuple[CatalogColumn, ...]:
    return tuple(CatalogColumn(one.name, one.type) for one in fields or ())


def _text(error: Exception | None) -> str:
    text = getattr(error, "message", None) or str(error)
    # The names of columns that cannot be changed are on the second line.
    return " ".join(f"{type(error).__name__}: {text}".split())[:_LONGEST_TEXT]
