"""Apache Hudi's ``StorageBasedLockProvider`` on S3, in the process of ``oracle_server``.

The provider is Apache's own code: it decides what the lock file contains, when a lease is expired,
and how it renews. Its client for S3 is in the module ``hudi-aws``, which no registry has. Its two
conditional requests (``S3StorageLockClient``) are made here by Amazon's client.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import boto3
from pyspark import java_gateway

_PROVIDER = "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider"
_PAUSE_S = 0.01


def count_under_lock(
    spark: Any, store: Mapping[str, str], table: str, counter: str, times: int
) -> None:
    """Increment the number in an object several times, each time under the table's lock.

    Args:
        spark: a session that has Apache Hudi.
        store: ``endpoint``, ``region``, and a pair of keys.
        table: url of the table's root.
        counter: key of the object.
        times: how often the number is incremented.
    """
    s3 = _client(store)
    bucket = table.removeprefix("s3://").partition("/")[0]
    with _provider(spark, s3, table) as lock:
        for _ in range(times):
            while not lock.tryLock():
                time.sleep(_PAUSE_S)
            number = int(s3.get_object(Bucket=bucket, Key=counter)["Body"].read())
            s3.put_object(Bucket=bucket, Key=counter, Body=str(number + 1).encode())
            lock.unlock()


def _client(store: Mapping[str, str]) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=store["endpoint"],
        region_name=store["region"],
        aws_access_key_id=store["access_key_id"],
        aws_secret_access_key=store["secret_access_key"],
    )


@contextmanager
def _provider(spark: Any, s3: Any, table: str) -> Iterator[Any]:
    jvm = spark._jvm
    gateways: Any = java_gateway
    gateways.ensure_callback_server_started(spark.sparkContext._gateway)
    models = jvm.org.apache.hudi.client.transaction.lock.models
    properties = jvm.org.apache.hudi.common.config.TypedProperties()
    properties.setProperty("hoodie.base.path", table)
    arguments = jvm.java.util.ArrayList()
    for argument in (
        "apache",
        properties,
        _Function3(models.LockProviderHeartbeatManager),
        _Function3(lambda owner, path, config: _LockClient(jvm, s3, path)),
        jvm.org.slf4j.LoggerFactory.getLogger(_PROVIDER),
        None,
    ):
        arguments.add(argument)
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    constructors = loader.loadClass(_PROVIDER).getDeclaredConstructors()
    (constructor,) = [c for c in constructors if c.getParameterCount() == arguments.size()]
    constructor.setAccessible(True)
    provider = constructor.newInstance(arguments.toArray())
    try:
        yield provider
    finally:
        provider.close()


class _Function3:
    """A Python function that implements an interface of Hudi."""

    def __init__(self, function: Callable[[Any, Any, Any], object]) -> None:
        self._function = function

    def apply(self, first: Any, second: Any, third: Any) -> object:
        return self._function(first, second, third)

    class Java:
        implements = ("org.apache.hudi.common.util.Functions$Function3",)


class _LockClient:
    """One lock file: read with its e-tag, and replaced only if it still has that e-tag."""

    def __init__(self, jvm: Any, s3: Any, path: str) -> None:
        self._models = jvm.org.apache.hudi.client.transaction.lock.models
        self._pair = jvm.org.apache.hudi.common.util.collection.Pair
        self._option = jvm.org.apache.hudi.common.util.Option
        self._bytes = jvm.java.io.ByteArrayInputStream
        self._s3 = s3
        bucket, _, key = path.removeprefix("s3://").partition("/")
        self._place = {"Bucket": bucket, "Key": key}

    def readCurrentLockFile(self) -> object:
        try:
            answer = self._s3.get_object(**self._place)
        except self._s3.exceptions.NoSuchKey:
            return self._pair.of(self._models.LockGetResult.NOT_EXISTS, self._option.empty())
        content = self._bytes(answer["Body"].read())
        file = self._models.StorageLockFile.createFromStream(content, answer["ETag"])
        return self._pair.of(self._models.LockGetResult.SUCCESS, self._option.of(file))

    def tryUpsertLockFile(self, data: Any, previous: Any) -> object:
        condition = {"IfNoneMatch": "*"}
        if previous.isPresent():
            condition = {"IfMatch": previous.get().getVersionId()}
        content = bytes(self._models.StorageLockFile.toByteArray(data))
        results = self._models.LockUpsertResult
        try:
            answer = self._s3.put_object(**self._place, **condition, Body=content)
        except self._s3.exceptions.ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] != 412:
                raise
            return self._pair.of(results.ACQUIRED_BY_OTHERS, self._option.empty())
        file = self._models.StorageLockFile(data, answer["ETag"])
        return self._pair.of(results.SUCCESS, self._option.of(file))

    def readObject(self, path: str, looks_first: bool) -> object:
        """Read an optional file with settings, which the table does not have."""
        return self._option.empty()

    def close(self) -> None:
        """Close the client, which holds no resources."""

    class Java:
        implements = ("org.apache.hudi.client.transaction.lock.StorageLockClient",)
