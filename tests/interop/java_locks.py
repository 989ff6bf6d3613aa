"""The locks of Apache Hudi and of Amazon's client, in a Java process without Spark.

``JavaLocks`` runs the process. Its locks are the classes themselves, so they decide what they store
and when they hold the lock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from streamer.toolchain import cache_home, find_java, find_spark, resolve
from tests.interop.oracle import oracle_python
from tests.interop.oracle_server import HUDI_COORDINATE

AMAZON_COORDINATE = "com.amazonaws:dynamodb-lock-client:1.2.0"

_LOCKS = "org.apache.hudi.client.transaction.lock"
_WAIT_MS = 60_000


class JavaLock(Protocol):
    """A lock in the Java process."""

    def acquire(self) -> None:
        """Wait for the lock, and acquire it."""
        ...

    def release(self) -> None:
        """Release the lock."""
        ...


class ApacheZooKeeperLock:
    """``ZookeeperBasedLockProvider`` of Apache Hudi.

    Args:
        jvm: the Java process.
        options: the options of lakemark's provider ``zookeeper``.
    """

    def __init__(self, jvm: Any, options: Mapping[str, str]) -> None:
        self._jvm = jvm
        properties = jvm.java.util.Properties()
        for name, value in {
            "hoodie.write.lock.zookeeper.url": options["hosts"],
            "hoodie.write.lock.zookeeper.base_path": options["base_path"],
            "hoodie.write.lock.zookeeper.lock_key": options["lock_key"],
        }.items():
            properties.setProperty(name, value)
        settings = jvm.org.apache.hudi.common.config.LockConfiguration(properties)
        package = jvm.org.apache.hudi.client.transaction.lock
        self._provider = package.ZookeeperBasedLockProvider(settings, None)

    def acquire(self) -> None:
        """See ``JavaLock``."""
        milliseconds = self._jvm.java.util.concurrent.TimeUnit.MILLISECONDS
        assert self._provider.tryLock(_WAIT_MS, milliseconds)

    def release(self) -> None:
        """See ``JavaLock``."""
        self._provider.unlock()


class AmazonLock:
    """Amazon's DynamoDB lock client, with the settings of ``DynamoDBBasedLockProvider``.

    The registries do not have ``hudi-aws``, in which Apache Hudi's class is. This class only passes
    settings to the client.

    Args:
        jvm: the Java process.
        options: the options of lakemark's provider ``dynamodb``.
        lease_ms: the duration of a lease.
    """

    def __init__(self, jvm: Any, options: Mapping[str, str], lease_ms: int) -> None:
        self._jvm, self._key = jvm, options["partition_key"]
        self._milliseconds = jvm.java.util.concurrent.TimeUnit.MILLISECONDS
        amazon = jvm.com.amazonaws.services.dynamodbv2
        settings = amazon.AmazonDynamoDBLockClientOptions.builder(
            self._dynamodb(options), options["table"]
        )
        settings.withTimeUnit(self._milliseconds).withLeaseDuration(lease_ms)
        settings.withHeartbeatPeriod(lease_ms // 3).withCreateHeartbeatBackgroundThread(True)
        self._client = amazon.AmazonDynamoDBLockClient(settings.build())
        self._lock: Any = None

    def acquire(self) -> None:
        """See ``JavaLock``; asks every 50 ms, so that a test does not wait for long."""
        amazon = self._jvm.com.amazonaws.services.dynamodbv2
        wanted = amazon.AcquireLockOptions.builder(self._key)
        wanted.withAdditionalTimeToWaitForLock(_WAIT_MS).withRefreshPeriod(50)
        self._lock = self._client.acquireLock(wanted.withTimeUnit(self._milliseconds).build())

    def release(self) -> None:
        """See ``JavaLock``."""
        assert self._client.releaseLock(self._lock)

    def _dynamodb(self, options: Mapping[str, str]) -> Any:
        sdk = self._jvm.software.amazon.awssdk
        builder = sdk.services.dynamodb.DynamoDbClient.builder()
        builder.endpointOverride(self._jvm.java.net.URI.create(options["endpoint_url"]))
        builder.region(sdk.regions.Region.of(options["region"]))
        return builder.build()


@contextmanager
def apache_hudi() -> Iterator[Any]:
    """Run a Java process that has Apache Hudi, with the ZooKeeper client of Spark 3.5.

    Raises:
        OracleUnavailable: the environment with Spark 3.5 is not installed.
    """
    environment = oracle_python().parent.parent
    (folder,) = environment.glob("lib/python3*/site-packages/pyspark/jars")
    with _java([*resolve([HUDI_COORDINATE], cache_home() / "jars"), folder / "*"]) as jvm:
        yield jvm


@contextmanager
def amazon_client() -> Iterator[Any]:
    """Run a Java process that has Amazon's lock client."""
    with _java(resolve([AMAZON_COORDINATE], cache_home() / "jars")) as jvm:
        yield jvm


@contextmanager
def _java(jars: Sequence[Path]) -> Iterator[Any]:
    (py4j,) = find_spark().jars_folder.glob("py4j-*.jar")
    port, token, process = launch_gateway(
        jarpath=str(py4j),
        classpath=":".join(map(str, jars)),
        javaopts=["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m"],
        java_path=str(find_java().executable),
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
    )
    # py4j tells Java of a collected object over another connection. Later calls may then use the
    # thread of that connection, but the lock of Apache Hudi belongs to the thread that acquired it.
    parameters = GatewayParameters(
        port=port, auth_token=token, auto_convert=True, enable_memory_management=False
    )
    gateway = JavaGateway(gateway_parameters=parameters)
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()
        process.kill()
        process.wait()
