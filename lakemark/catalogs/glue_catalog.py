"""The catalog ``glue``: the Data Catalog of AWS Glue, which Athena, EMR and Redshift read.

Source: ``AWSGlueCatalogSyncClient`` of Apache Hudi. Unlike it, ``alter_table`` also changes the
columns of the partitions, because Athena compares them with those of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from lakemark.catalogs.catalog import (
    CatalogChanged,
    CatalogColumn,
    CatalogPartition,
    CatalogRefused,
    CatalogTable,
    CatalogUnavailable,
)
from lakemark.catalogs.glue_settings import GlueSettings

T = TypeVar("T")

#: The largest numbers of partitions that Glue accepts in a request.
_BATCH, _DELETED = 100, 25

_CLIENT_SETTINGS = Config(
    connect_timeout=5, read_timeout=20, retries={"mode": "standard", "total_max_attempts": 3}
)

#: The codes of errors that another attempt does not correct. All others may be transient.
_REFUSING = (
    "AccessDeniedException",
    "UnrecognizedClientException",
    "InvalidSignatureException",
    "ExpiredTokenException",
    "InvalidInputException",
    "ValidationException",
    "ResourceNumberLimitExceededException",
    "GlueEncryptionException",
)
_MISSING, _EXISTS = "EntityNotFoundException", "AlreadyExistsException"


class GlueCatalog:
    """One database of a Data Catalog.

    Attributes:
        name: the database and the region, for messages.

    Args:
        settings: the region and the account.
        database: the name of the database.

    Raises:
        CatalogRefused: the region is not known.
    """

    def __init__(self, settings: GlueSettings, database: str) -> None:
        self.name = f"database {database} of AWS Glue"
        self._database = database.lower()
        account = {"CatalogId": settings.catalog_id} if settings.catalog_id else {}
        self._of_account: Mapping[str, str] = account
        self._of_database = {**account, "DatabaseName": self._database}
        try:
            # Threads of several catalogs must not share boto3's default session.
            self._client: Any = boto3.session.Session().client(
                "glue",
                region_name=settings.region,
                endpoint_url=settings.endpoint_url,
                config=_CLIENT_SETTINGS,
            )
        except (BotoCoreError, ValueError) as error:
            message = f"{self.name} cannot be called: {error}"
            raise CatalogRefused(message) from error

    def has_database(self) -> bool:
        """Return whether the database exists."""
        try:
            self._call("get_database", Name=self._database, **self._of_account)
        except _Missing:
            return False
        return True

    def create_database(self) -> None:
        """Create the database; do nothing if it exists."""
        given = {"Name": self._database, "Description": "created by lakemark"}
        try:
            self._call("create_database", DatabaseInput=given, **self._of_account)
        except _Exists:
            return

    def find_table(self, table: str) -> CatalogTable | None:
        """Return what Glue stores about a table; None if it does not know the table."""
        stored = self._find(table)
        if stored is None:
            return None
        storage = stored.get("StorageDescriptor", {})
        serde = storage.get("SerdeInfo", {})
        return CatalogTable(
            stored["Name"],
            storage.get("Location", ""),
            _from_columns(storage.get("Columns")),
            _from_columns(stored.get("PartitionKeys")),
            storage.get("InputFormat", ""),
            storage.get("OutputFormat", ""),
            serde.get("SerializationLibrary", ""),
            serde.get("Parameters", {}),
            stored.get("Parameters", {}),
        )

    def create_table(self, table: CatalogTable) -> None:
        """Create an external table."""
        created = {
            "Name": table.name,
            "TableType": "EXTERNAL_TABLE",
            "PartitionKeys": _to_columns(table.partition_columns),
            "StorageDescriptor": _storage(table, table.location),
            "Parameters": dict(table.parameters),
        }
        try:
            self._call("create_table", TableInput=created, **self._of_database)
        except _Exists as error:
            raise CatalogChanged.of(table.name, self.name, "created") from error

    def alter_table(self, table: CatalogTable) -> None:
        """Replace the columns and formats of a table, also in its partitions."""
        stored = self._find(table.name)
        if stored is None:
            raise CatalogChanged.of(table.name, self.name, "dropped")
        storage = stored.get("StorageDescriptor", {})
        properties = storage.get("SerdeInfo", {}).get("Parameters", {})
        changed = _storage(table, storage.get("Location") or table.location)
        changed["SerdeInfo"]["Parameters"] = {**properties, **table.serde_properties}
        changed["Columns"] = _with_details(changed["Columns"], storage.get("Columns"))
        kept = ("Description", "Owner", "Retention", "TableType")
        given = {
            **{name: stored[name] for name in kept if name in stored},
            "Name": table.name,
            "PartitionKeys": stored.get("PartitionKeys", []),
            "StorageDescriptor": {**storage, **changed},
            "Parameters": {**stored.get("Parameters", {}), **table.parameters},
        }
        if table.partition_columns and _describes_rows(storage) != _describes_rows(changed):
            # The partitions come first, so that a sync that fails here is repeated.
            self.move_partitions(table, self.list_partitions(table.name))
        self._call("update_table", TableInput=given, SkipArchive=True, **self._of_database)

    def list_partitions(self, table: str) -> list[CatalogPartition]:
        """Return all partitions of a table."""
        found: list[CatalogPartition] = []
        token: dict[str, str] = {}
        while True:
            answer = self._call(
                "get_partitions",
                TableName=table,
                ExcludeColumnSchema=True,
                **token,
                **self._of_database,
            )
            found += map(_from_partition, answer["Partitions"])
            if not answer.get("NextToken"):
                return found
            token = {"NextToken": answer["NextToken"]}

    def find_partitions(
        self, table: CatalogTable, values: Sequence[tuple[str, ...]]
    ) -> list[CatalogPartition]:
        """Return those partitions of a table that exist, of the partitions with these values."""
        found: list[CatalogPartition] = []
        for batch in _batches(values, _BATCH):
            wanted = [{"Values": list(one)} for one in batch]
            while wanted:
                answer = self._call(
                    "batch_get_partition",
                    TableName=table.name,
                    PartitionsToGet=wanted,
                    **self._of_database,
                )
                found += map(_from_partition, answer.get("Partitions", ()))
                wanted = answer.get("UnprocessedKeys", [])
        return found

    def add_partitions(self, table: CatalogTable, partitions: Sequence[CatalogPartition]) -> None:
        """Add partitions; those that exist already are skipped."""
        for batch in _batches(partitions, _BATCH):
            answer = self._call(
                "batch_create_partition",
                TableName=table.name,
                PartitionInputList=[_to_partition(table, one) for one in batch],
                **self._of_database,
            )
            self._check(answer, skipped=_EXISTS)

    def move_partitions(self, table: CatalogTable, partitions: Sequence[CatalogPartition]) -> None:
        """Change the locations and columns of existing partitions."""
        for batch in _batches(partitions, _BATCH):
            entries = [
                {
                    "PartitionValueList": list(one.values),
                    "PartitionInput": _to_partition(table, one),
                }
                for one in batch
            ]
            answer = self._call(
                "batch_update_partition",
                TableName=table.name,
                Entries=entries,
                **self._of_database,
            )
            self._check(answer, skipped=_MISSING)

    def drop_partitions(self, table: CatalogTable, partitions: Sequence[CatalogPartition]) -> None:
        """Remove partitions from Glue, and keep their files."""
        for batch in _batches(partitions, _DELETED):
            answer = self._call(
                "batch_delete_partition",
                TableName=table.name,
                PartitionsToDelete=[{"Values": list(one.values)} for one in batch],
                **self._of_database,
            )
            self._check(answer, skipped=_MISSING)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _find(self, table: str) -> Any:
        """Return Glue's table; None if it does not know the table."""
        try:
            return self._call("get_table", Name=table, **self._of_database)["Table"]
        except _Missing:
            return None

    def _call(self, operation: str, **arguments: Any) -> Any:
        """Send a request.

        Raises:
            CatalogUnavailable: Glue does not answer, or fails.
            CatalogRefused: Glue refuses the request.
        """
        call: Callable[..., Any] = getattr(self._client, operation)
        try:
            return call(**arguments)
        except ClientError as error:
            details = error.response.get("Error", {})
            raise self._error(details.get("Code", ""), details.get("Message", "")) from error
        except BotoCoreError as error:
            message = f"{self.name} does not answer: {error}"
            raise CatalogUnavailable(message) from error

    def _check(self, answer: Mapping[str, Any], skipped: str) -> None:
        """Raise the first error of single partitions, except errors with the code ``skipped``."""
        for failed in answer.get("Errors", ()):
            details = failed.get("ErrorDetail", {})
            if details.get("ErrorCode") != skipped:
                raise self._error(details.get("ErrorCode", ""), details.get("ErrorMessage", ""))

    def _error(self, code: str, text: str) -> CatalogUnavailable | CatalogRefused:
        message = f"{self.name}: {code}: {text}"
        if code == _MISSING:
            return _Missing(message)
        if code == _EXISTS:
            return _Exists(message)
        return CatalogRefused(message) if code in _REFUSING else CatalogUnavailable(message)


class _Missing(CatalogRefused):
    """Glue does not have the object."""


class _Exists(CatalogRefused):
    """Glue already has the object."""


def _batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _storage(table: CatalogTable, location: str) -> dict[str, Any]:
    return {
        "Columns": _to_columns(table.columns),
        "Location": location,
        "InputFormat": table.input_format,
        "OutputFormat": table.output_format,
        "SerdeInfo": {
            "SerializationLibrary": table.serde,
            "Parameters": dict(table.serde_properties),
        },
    }


def _to_partition(table: CatalogTable, partition: CatalogPartition) -> dict[str, Any]:
    return {
        "Values": list(partition.values),
        "StorageDescriptor": _storage(table, partition.location),
    }


def _from_partition(stored: Mapping[str, Any]) -> CatalogPartition:
    return CatalogPartition(
        tuple(stored["Values"]), stored.get("StorageDescriptor", {}).get("Location", "")
    )


def _to_columns(columns: Sequence[CatalogColumn]) -> list[dict[str, str]]:
    return [{"Name": one.name, "Type": one.type} for one in columns]


def _with_details(
    columns: Sequence[Mapping[str, str]], stored: Sequence[Mapping[str, Any]] | None
) -> list[dict[str, Any]]:
    """Return columns with the comments and the parameters that Glue has stored for them."""
    known = {one["Name"]: one for one in stored or ()}
    return [{**known.get(one["Name"], {}), **one} for one in columns]


def _describes_rows(storage: Mapping[str, Any]) -> tuple[object, ...]:
    """Return the columns and the formats of a table, which its partitions store, too."""
    formats = (storage.get("InputFormat"), storage.get("OutputFormat"))
    serde = storage.get("SerdeInfo", {}).get("SerializationLibrary")
    return (_from_columns(storage.get("Columns")), *formats, serde)


def _from_columns(columns: Sequence[Mapping[str, str]] | None) -> tuple[CatalogColumn, ...]:
    return tuple(CatalogColumn(one["Name"], one.get("Type", "")) for one in columns or ())
