"""Opens the storage of a location."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from threading import Lock
from typing import TYPE_CHECKING, cast

from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from lakemark.errors import InvalidConfig, StorageUnavailable
from lakemark.storage.local_storage import LocalStorage
from lakemark.storage.object_storage import ObjectStorage, StoreAbilities
from lakemark.storage.s3_credentials import take_credentials
from lakemark.storage.storage import Storage, StorageLocation, check_folder
from lakemark.storage.store_errors import StoreErrors

if TYPE_CHECKING:
    from obstore.store import (
        AzureConfig,
        ClientConfig,
        GCSConfig,
        ObjectStore,
        RetryConfig,
        S3Config,
    )

    Options = Mapping[str, str]
    StoreMaker = Callable[[str, Options, ClientConfig, RetryConfig], ObjectStore]

#: lakemark's own storage option: the time in seconds for which a failing request is retried.
RETRY_TIMEOUT_S = "retry_timeout_s"

# With this default, a dead endpoint is reported after about half a minute. This is longer than the
# timeout, because after a write without an answer, the object is read, too.
_DEFAULT_RETRY_TIMEOUT_S = 10.0
_TIMEOUT = "20s"
_CONNECT_TIMEOUT = "5s"
_MAX_RETRIES = 10
_MAX_BACKOFF = timedelta(seconds=3)

_ENDPOINT_VARIABLES = (
    "AWS_ENDPOINT",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AZURE_STORAGE_ENDPOINT",
    "AZURE_ENDPOINT",
    "GOOGLE_BASE_URL",
)

#: GCS calls its endpoint ``base_url``.
_ENDPOINT_OPTION = re.compile("endpoint|base_url", re.IGNORECASE)

_memory_stores: dict[str, MemoryStore] = {}
_memory_stores_lock = Lock()


def open_storage(location: StorageLocation) -> Storage:
    """Open the storage at a location. This reads nothing, and creates nothing.

    Raises:
        InvalidConfig: the kind of store is unknown, or its options are wrong.
    """
    scheme, rest = _split(location.url)
    if scheme in _STORES:
        return _open_object_storage(location, scheme, rest)
    root = _local_root(rest)
    return LocalStorage(location if scheme else StorageLocation(root, location.options), root)


def canonical_url(url: str) -> str:
    """Return the canonical form of a URL, for checks and comparisons.

    The storage is not opened. Links on a local disk are followed.

    Raises:
        InvalidConfig: the kind of store is unknown, or the URL has no bucket or path.
        InvalidPath: a store refuses the path.
    """
    scheme, rest = _split(url)
    if scheme not in _STORES:
        return f"file://{os.path.realpath(_local_root(rest))}"
    bucket, host, prefix = _bucket_and_prefix(scheme, rest)
    container = f"{bucket}@{host}" if host else bucket
    return f"{_ALIASES.get(scheme, scheme)}://{container}/{prefix}"


def _split(url: str) -> tuple[str, str]:
    """Return the scheme ("" for a plain path) and the rest of a URL.

    If the scheme is that of an object store, the rest has no leading slashes.
    """
    scheme, _, rest = url.partition(":")
    if rest.startswith("//") and scheme in _STORES:
        return scheme, rest[2:]
    if scheme == "file" and rest:
        return scheme, rest
    if rest.startswith("//"):
        known = ", ".join(sorted([*_STORES, "file"]))
        message = f"{scheme!r} is not a kind of store; supported are {known} and plain paths"
        raise InvalidConfig(message + _REMEDIES.get(scheme.lower(), ""))
    if broken := _BROKEN_SEPARATOR.match(url):
        scheme = (broken["scheme"] or broken["other"]).lower()
        message = (
            f"a location that begins with {broken[0]!r} is neither a URL nor a plain path; for a "
            f"URL, write {scheme}://…; for a local path, write ./{broken[0]}…"
        )
        raise InvalidConfig(message)
    return "", url


def _local_root(path: str) -> str:
    """Return the absolute path of ``/x``, ``///x``, ``//localhost/x``, ``~/x`` or ``x``."""
    if path.startswith("//"):
        host, _, path = path[2:].partition("/")
        if host not in ("", "localhost"):
            message = f"a file URL must begin with file:///, but has the host {host!r}"
            raise InvalidConfig(message)
        path = f"/{path}"
    return os.path.abspath(os.path.expanduser(path))


def _open_object_storage(location: StorageLocation, scheme: str, rest: str) -> ObjectStorage:
    bucket, host, prefix = _bucket_and_prefix(scheme, rest)
    options = dict(location.options)
    if host:
        options.setdefault("account_name", host.partition(".")[0])
    make_store, abilities = _STORES[scheme]
    retry = _retry_config(options)
    try:
        with StoreErrors(location.url, location.options).typed(""):
            store = make_store(bucket, options, _client_config(options), retry)
    except StorageUnavailable as error:  # no request was sent, so the options are wrong
        raise InvalidConfig(str(error)) from None
    return ObjectStorage(location, store, prefix, abilities, open_storage)


def _bucket_and_prefix(scheme: str, rest: str) -> tuple[str, str, str]:
    """Return the bucket or container, the host, and the path inside the bucket.

    The host is "" unless the URL contains one (Azure).
    """
    bucket, _, prefix = rest.partition("/")
    prefix, host = prefix.strip("/"), ""
    if scheme in _AZURE_HADOOP_SCHEMES:
        bucket, _, host = bucket.partition("@")
    if "@" in bucket:
        message = f"access keys in a {scheme}:// URL would be printed; give them as storage options"
        raise InvalidConfig(message)
    if not bucket:
        message = f"a {scheme}:// URL must begin with a bucket or container"
        raise InvalidConfig(message)
    if prefix:
        check_folder(prefix)
    return bucket, host, prefix


def _client_config(options: Mapping[str, str]) -> ClientConfig:
    """Return the client's timeouts. Plain HTTP is allowed only if the endpoint is ``http://``."""
    endpoints = [value for key, value in options.items() if _ENDPOINT_OPTION.search(key)]
    endpoints += [os.environ.get(name, "") for name in _ENDPOINT_VARIABLES]
    config: ClientConfig = {"timeout": _TIMEOUT, "connect_timeout": _CONNECT_TIMEOUT}
    if "timeout" in options:
        config["timeout"] = options["timeout"]
    if "connect_timeout" in options:
        config["connect_timeout"] = options["connect_timeout"]
    if any(endpoint.startswith("http://") for endpoint in endpoints):
        config["allow_http"] = True
    return config


def _retry_config(options: dict[str, str]) -> RetryConfig:
    """Return the client's retry settings; remove lakemark's own option from ``options``."""
    text = options.pop(RETRY_TIMEOUT_S, _DEFAULT_RETRY_TIMEOUT_S)
    try:
        retry_timeout = timedelta(seconds=float(text))
    except ValueError:
        message = f"storage option {RETRY_TIMEOUT_S} is {text!r}; use a number of seconds"
        raise InvalidConfig(message) from None
    return {
        "max_retries": _MAX_RETRIES,
        "retry_timeout": retry_timeout,
        "backoff": {"max_backoff": _MAX_BACKOFF},
    }


def _s3(bucket: str, options: Options, client: ClientConfig, retry: RetryConfig) -> S3Store:
    given = dict(options)
    credentials = take_credentials(given)
    config = cast("S3Config", given)
    return S3Store(
        bucket,
        config=config,
        client_options=client,
        retry_config=retry,
        credential_provider=credentials,
    )


def _gcs(bucket: str, options: Options, client: ClientConfig, retry: RetryConfig) -> GCSStore:
    config = cast("GCSConfig", options)
    return GCSStore(bucket, config=config, client_options=client, retry_config=retry)


def _azure(bucket: str, options: Options, client: ClientConfig, retry: RetryConfig) -> AzureStore:
    config = cast("AzureConfig", options)
    return AzureStore(bucket, config=config, client_options=client, retry_config=retry)


def _memory(name: str, options: Options, client: ClientConfig, retry: RetryConfig) -> MemoryStore:
    """Return the process's store of this name, so that all storages of a name share objects."""
    with _memory_stores_lock:
        return _memory_stores.setdefault(name, MemoryStore())


_S3 = (_s3, StoreAbilities(copies_conditionally=False))
_AZURE = (_azure, StoreAbilities(copies_in_background=True, reads_backslashes_as_slashes=True))
_AZURE_HADOOP_SCHEMES = ("abfs", "abfss")
_ALIASES = {"s3a": "s3", "abfs": "az", "abfss": "az"}
_STORES: dict[str, tuple[StoreMaker, StoreAbilities]] = {
    "s3": _S3,
    "s3a": _S3,
    "gs": (_gcs, StoreAbilities(version="version")),
    "az": _AZURE,
    **dict.fromkeys(_AZURE_HADOOP_SCHEMES, _AZURE),
    "memory": (_memory, StoreAbilities()),
}

#: What helps with stores that are not supported. Every client of HDFS needs Hadoop's jars.
_REMEDIES = {
    "hdfs": "; HDFS is not supported: copy the table to one of these stores",
    "viewfs": "; HDFS is not supported: copy the table to one of these stores",
}

#: A scheme with a mistyped ``://``, for example ``s3//bucket``, ``s3:bucket`` or ``hdfs:/tables``.
#: If such a location were a plain path, a folder of that name would be created on the local disk.
_BROKEN_SEPARATOR = re.compile(
    rf"(?P<scheme>{'|'.join([*_STORES, 'file', 'hdfs', 'gcs', 'https?'])})(?:[:;]|//)"
    r"|(?P<other>[A-Za-z][A-Za-z0-9+.-]+):/",
    re.IGNORECASE,
)
