"""The lock provider ``dynamodb``, for tables whose other writers use Apache Hudi's provider.

``DynamoDBBasedLockProvider`` of Apache Hudi uses Amazon's DynamoDB lock client. The lock is one
item of a table, with these attributes, all of them text:

    key                  the name of the lock
    ownerName            the holder
    leaseDuration        the duration of its lease in milliseconds
    recordVersionNumber  a random name, which each renewal replaces
    isReleased           "1" if the holder released the lock; otherwise absent
    lakemarkRecord       the lock record, if lakemark wrote the item

Each request that changes the item has the condition that the item still has the version that the
writer read. Amazon's client compares no clocks: a writer takes the lock over when it has seen one
version for the whole duration of the lease. lakemark treats the items of Apache Hudi in the same
way. The lease of a lakemark item ends, for other lakemark writers, at the time in its record.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from uuid import uuid4

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
)

from lakemark.errors import CorruptData, HudiError, InvalidConfig, StorageUnavailable
from lakemark.storage.storage import AccessDenied
from lakemark.timeline.locks.lock_provider import Claim, LockRecord
from lakemark.timeline.locks.options import check_options, hash_of_path

_KEY, _OWNER, _DURATION = "key", "ownerName", "leaseDuration"
_VERSION, _RELEASED, _RECORD = "recordVersionNumber", "isReleased", "lakemarkRecord"

#: Each request is answered or given up in less than half of a lease.
_CLIENT_SETTINGS = Config(
    connect_timeout=4, read_timeout=5, retries={"mode": "standard", "total_max_attempts": 2}
)

_DEFAULT_REGION = "us-east-1"

#: The codes of errors that another attempt does not correct. All others may be transient.
_DENIED = (
    "AccessDeniedException",
    "UnrecognizedClientException",
    "InvalidSignatureException",
    "IncompleteSignature",
    "MissingAuthenticationTokenException",
    "ExpiredTokenException",
)
_WRONG = ("ValidationException", "SerializationException", "UnknownOperationException")

_Item = Mapping[str, Mapping[str, str]]

#: The version of each of Apache Hudi's items that this process read last, and when it was read
#: first. Each attempt to write a batch opens the lock anew, and must not begin to wait anew.
_seen: dict[DynamoDbSettings, tuple[str, float]] = {}


@dataclass(frozen=True, slots=True)
class DynamoDbSettings:
    """Where a table's lock is in DynamoDB.

    Attributes:
        table: the name of the DynamoDB table (``hoodie.write.lock.dynamodb.table``).
        key: the name of the lock (``hoodie.write.lock.dynamodb.partition_key``).
        region: the AWS region; None to read ``AWS_REGION``, and without it ``us-east-1``.
        endpoint_url: the URL of the service, if it is not that of the region.
    """

    table: str
    key: str
    region: str | None = None
    endpoint_url: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, str], url: str) -> DynamoDbSettings:
        """Parse the options of the provider.

        Without ``partition_key``, the key is that of Apache Hudi's
        ``DynamoDBBasedImplicitPartitionKeyLockProvider``.

        Args:
            options: ``table``; ``partition_key``, ``region`` and ``endpoint_url``.
            url: the URL of the lakemark table.

        Raises:
            InvalidConfig: an option is missing or unknown.
        """
        names = ("partition_key", "region", "endpoint_url")
        check_options("dynamodb", options, required=("table",), optional=names)
        key = options.get("partition_key") or hash_of_path(url.rstrip("/"))
        region, endpoint = options.get("region"), options.get("endpoint_url")
        if endpoint and "://" not in endpoint:
            endpoint = f"https://{endpoint}"  # as Apache Hudi does
        return cls(options["table"], key, region or None, endpoint or None)


class DynamoDbLock:
    """A ``LockProvider`` on one item of a DynamoDB table.

    The credentials are those that boto3 finds: environment variables, a profile, or a role.

    Args:
        settings: where the lock is.
        url: the URL of the table, which the records contain.
        now_ms: returns this machine's time in epoch milliseconds.

    Attributes:
        longer_wait_s: see ``LockProvider``; the lease of Apache Hudi's item, if that was read last.
    """

    def __init__(self, settings: DynamoDbSettings, url: str, now_ms: Callable[[], int]) -> None:
        self._settings, self._url = settings, url
        self._now_ms = now_ms
        self.longer_wait_s = 0.0

    @property
    def name(self) -> str:
        """See ``LockProvider.name``."""
        return f"{self._settings.key} of DynamoDB table {self._settings.table}"

    def try_acquire(self, ours: LockRecord, is_free: Callable[[LockRecord], bool]) -> Claim | None:
        """See ``LockProvider.try_acquire``."""
        ours, seen = replace(ours, table=self._url), self._read()
        if seen is None:
            return self._write(ours, None)
        if is_free(seen.record):
            claim = self._write(ours, seen.version)
            return claim and replace(claim, taken_over=not seen.record.shows_release(self._url))
        if seen.record.owner == ours.owner:
            # An earlier call stored the record, but the answer to that call was lost.
            return replace(seen, taken_over=True)
        return None

    def cancel(self, owner: str, after_s: float = 0.0) -> None:
        """See ``LockProvider.cancel``; waiting writers store nothing."""

    def replace_record(self, claim: Claim, record: LockRecord) -> Claim | None:
        """See ``LockProvider.replace_record``."""
        return self._write(record, claim.version)

    def is_current(self, claim: Claim) -> bool:
        """See ``LockProvider.is_current``; the answer to a renewal may have been lost."""
        seen = self._read()
        if seen is None or seen.record.expired:
            return False
        return seen.record.owner == claim.record.owner

    def holder(self) -> str:
        """See ``LockProvider.holder``."""
        seen = self._read()
        return seen.record.owner if seen else "nobody"

    @cached_property
    def _client(self) -> Any:
        settings = self._settings
        region = settings.region or os.environ.get("AWS_REGION") or _DEFAULT_REGION
        try:
            return boto3.client(
                "dynamodb",
                region_name=region,
                endpoint_url=settings.endpoint_url,
                config=_CLIENT_SETTINGS,
            )
        except (BotoCoreError, ValueError) as error:
            message = f"lock {self.name}: {error}; correct the options of the lock"
            raise InvalidConfig(message) from error

    def _read(self) -> Claim | None:
        """Return the stored item as a claim of its owner; None if there is no item."""
        key = {_KEY: {"S": self._settings.key}}
        item = self._answer("get_item", Key=key, ConsistentRead=True).get("Item")
        return self._claim_of(item) if item else None

    def _write(self, record: LockRecord, version: str | None) -> Claim | None:
        """Store a record if the item has a version; None if another writer has changed the item.

        If the answer to an earlier request was lost, the item may have another version, but the
        same owner. Only this process knows that owner.
        """
        written = str(uuid4())
        condition = _has_version(version) if version else _is_absent()
        try:
            self._answer("put_item", Item=self._item(record, written), **condition)
        except _ConditionFailed:
            stored = self._read()
            if stored is None or stored.record.owner != record.owner:
                return None
            if stored.version == written:
                return stored
            return None if stored.record.expired else self._write(record, stored.version)
        return Claim(record, written)

    def _item(self, record: LockRecord, version: str) -> dict[str, dict[str, str]]:
        is_released = record.expired or not record.valid_until_ms
        texts = {
            _KEY: self._settings.key,
            _OWNER: record.owner,
            _DURATION: str(max(0, record.valid_until_ms - self._now_ms())),
            _VERSION: version,
            _RECORD: record.to_bytes().decode(),
            **({_RELEASED: "1"} if is_released else {}),
        }
        return {name: {"S": text} for name, text in texts.items()}

    def _claim_of(self, item: _Item) -> Claim:
        """Return the claim of a stored item.

        Raises:
            CorruptData: the item is not that of a lock.
        """
        try:
            version = item[_VERSION]["S"]
            if _RECORD in item:
                self.longer_wait_s = 0.0
                return Claim(LockRecord.parse(item[_RECORD]["S"].encode(), self.name), version)
            owner, duration_ms = item[_OWNER]["S"], int(item[_DURATION]["S"])
        except (KeyError, ValueError, TypeError) as error:
            expected = "the item of a lock (stop all writers and delete it)"
            raise CorruptData(self.name, None, expected, repr(sorted(item))) from error
        until_ms = self._now_ms() + duration_ms - self._seen_for_ms(version)
        self.longer_wait_s = duration_ms / 1000
        return Claim(LockRecord(owner, until_ms, expired=_RELEASED in item), version)

    def _seen_for_ms(self, version: str) -> int:
        """Return for how long this process has seen this version of Apache Hudi's item."""
        now_s = time.monotonic()
        seen_version, first_s = _seen.get(self._settings, ("", 0.0))
        if seen_version != version:
            _seen[self._settings] = version, now_s
            return 0
        return int(1000 * (now_s - first_s))

    def _answer(self, method: str, **arguments: object) -> Any:
        """Send a request; create the table first if it does not exist."""
        try:
            return self._send(method, **arguments)
        except _TableMissing:
            self._create_table()
        try:
            return self._send(method, **arguments)
        except _TableMissing as error:
            raise StorageUnavailable(str(error)) from error

    def _send(self, method: str, **arguments: object) -> Any:
        try:
            return getattr(self._client, method)(TableName=self._settings.table, **arguments)
        except (BotoCoreError, ClientError) as error:
            raise self._failure(error) from error

    def _create_table(self) -> None:
        """Create the table as Apache Hudi does, unless another writer does so."""
        try:
            self._client.create_table(
                TableName=self._settings.table,
                KeySchema=[{"AttributeName": _KEY, "KeyType": "HASH"}],
                AttributeDefinitions=[{"AttributeName": _KEY, "AttributeType": "S"}],
                BillingMode="PAY_PER_REQUEST",
            )
        except (BotoCoreError, ClientError) as error:
            if _code(error) != "ResourceInUseException":
                raise self._failure(error) from error
        try:
            waiter = self._client.get_waiter("table_exists")
            patience = {"Delay": 2, "MaxAttempts": 5}
            waiter.wait(TableName=self._settings.table, WaiterConfig=patience)
        except (BotoCoreError, ClientError) as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> HudiError:
        """Return lakemark's error for an error of boto3."""
        code, text = _code(error), f"lock {self.name}: {error}"
        if code == "ConditionalCheckFailedException":
            return _ConditionFailed(text)
        if code == "ResourceNotFoundException":
            return _TableMissing(text)
        if code in _DENIED or isinstance(error, (NoCredentialsError, PartialCredentialsError)):
            remedy = "allow dynamodb:GetItem, PutItem, CreateTable and DescribeTable"
            return AccessDenied(f"{text}; {remedy}")
        if code in _WRONG or isinstance(error, ParamValidationError):
            return InvalidConfig(f"{text}; correct the options of the lock")
        return StorageUnavailable(text)


class _ConditionFailed(HudiError):
    """The item no longer has the version that the request names."""


class _TableMissing(HudiError):
    """The DynamoDB table does not exist."""


def _has_version(version: str) -> dict[str, object]:
    return {
        "ConditionExpression": "#version = :version",
        "ExpressionAttributeNames": {"#version": _VERSION},
        "ExpressionAttributeValues": {":version": {"S": version}},
    }


def _is_absent() -> dict[str, object]:
    return {
        "ConditionExpression": "attribute_not_exists(#key)",
        "ExpressionAttributeNames": {"#key": _KEY},
    }


def _code(error: Exception) -> str:
    """Return the code of an error that the service returned; "" for an error without an answer."""
    if not isinstance(error, ClientError):
        return ""
    code: str = error.response.get("Error", {}).get("Code", "")
    return code
