"""Opens the storage that a location names."""

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

#: Option of this project: for how long a failing request is tried again, in seconds.
RETRY_TIMEOUT_S = "retry_timeout_s"

# A dead endpoint is reported after about half a minute: what is doubtful is tried again by reading.
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
    """The storage at a location. Nothing is read, and nothing is made before the first write.

    Raises:
        InvalidConfig: the location names no known kind of store, or its options are wrong.
    """
    scheme, rest = _split(location.url)
    if scheme in _STORES:
        return _open_object_storage(location, scheme, rest)
    root = _local_root(rest)
    return LocalStorage(location if scheme else StorageLocation(root, location.options), root)


def place_of(url: str) -> str:
    """What a url names, in the one spelling of each place; for checks and comparisons.

    Nothing is opened. Links on a local disk are followed.

    Raises:
        InvalidConfig: it names no known kind of store, or no place in one.
        InvalidPath: a store refuses the path.
    """
    scheme, rest = _split(url)
    if scheme not in _STORES:
        return f"file://{os.path.realpath(_local_root(rest))}"
    bucket, host, prefix = _bucket_and_prefix(scheme, rest)
    container = f"{bucket}@{host}" if host else bucket
    return f"{_ALIASES.get(scheme, scheme)}://{container}/{prefix}"


def _split(url: str) -> tuple[str, str]:
    """Scheme ("" of a plain path) and the rest, without the slashes where a store is named."""
    scheme, _, rest = url.partition(":")
    if rest.startswith("//") and scheme in _STORES:
        return scheme, rest[2:]
    if scheme == "file" and rest:
        return scheme, rest
    if rest.startswith("//"):
        known = ", ".join(sorted([*_STORES, "file"]))
        message = f"no kind of store is called {scheme!r}; known are {known} and plain paths"
        raise InvalidConfig(message)
    if broken := _BROKEN_SEPARATOR.match(url):
        scheme = (broken["scheme"] or broken["other"]).lower()
        message = (
            f"a location that begins with {broken[0]!r} is neither a URL nor a plain path; for a "
            f"URL, write {scheme}://…; for a local path, write ./{broken[0]}…"
        )
        raise InvalidConfig(message)
    return "", url


def _local_root(path: str) -> str:
    """The absolute path of ``/x``, ``///x``, ``//localhost/x`` or a relative path."""
    if path.startswith("//"):
        host, _, path = path[2:].partition("/")
        if host not in ("", "localhost"):
            message = f"a file URL starts with file:///, not with the host {host!r}"
            raise InvalidConfig(message)
        path = f"/{path}"
    return os.path.abspath(path)


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
    except StorageUnavailable as error:  # the client is made without asking the store
        raise InvalidConfig(str(error)) from None
    return ObjectStorage(location, store, prefix, abilities)


def _bucket_and_prefix(scheme: str, rest: str) -> tuple[str, str, str]:
    """Bucket or container, its host where the url has one (Azure), and the path inside."""
    bucket, _, prefix = rest.partition("/")
    prefix, host = prefix.strip("/"), ""
    if scheme in _AZURE_HADOOP_SCHEMES:
        bucket, _, host = bucket.partition("@")
    if "@" in bucket:
        message = f"keys in a {scheme}:// URL would be printed; give them as storage options"
        raise InvalidConfig(message)
    if not bucket:
        message = f"a {scheme}:// URL names a bucket or container first"
        raise InvalidConfig(message)
    if prefix:
        check_folder(prefix)
    return bucket, host, prefix


def _client_config(options: Mapping[str, str]) -> ClientConfig:
    """Bounded waits; plain HTTP only when the endpoint says so."""
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
    """How failing requests are tried again; takes this project's own option out."""
    text = options.pop(RETRY_TIMEOUT_S, _DEFAULT_RETRY_TIMEOUT_S)
    try:
        retry_timeout = timedelta(seconds=float(text))
    except ValueError:
        message = f"storage option {RETRY_TIMEOUT_S} is a number of seconds, not {text!r}"
        raise InvalidConfig(message) from None
    return {
        "max_retries": _MAX_RETRIES,
        "retry_timeout": retry_timeout,
        "backoff": {"max_backoff": _MAX_BACKOFF},
    }


def _s3(bucket: str, options: Options, client: ClientConfig, retry: RetryConfig) -> S3Store:
    config = cast("S3Config", options)
    return S3Store(bucket, config=config, client_options=client, retry_config=retry)


def _gcs(bucket: str, options: Options, client: ClientConfig, retry: RetryConfig) -> GCSStore:
    config = cast("GCSConfig", options)
    return GCSStore(bucket, config=config, client_options=client, retry_config=retry)


def _azure(bucket: str, options: Options, client: ClientConfig, retry: RetryConfig) -> AzureStore:
    config = cast("AzureConfig", options)
    return AzureStore(bucket, config=config, client_options=client, retry_config=retry)


def _memory(name: str, options: Options, client: ClientConfig, retry: RetryConfig) -> MemoryStore:
    """The process's store of this name, so that two openings see the same objects."""
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

#: A name of a store or of a file system, then a mistyped ``://``: ``s3//bucket``, ``s3:bucket``,
#: ``hdfs:/tables``. A plain path would become a folder of that name on the local disk.
_BROKEN_SEPARATOR = re.compile(
    rf"(?P<scheme>{'|'.join([*_STORES, 'file', 'hdfs', 'gcs', 'https?'])})(?:[:;]|//)"
    r"|(?P<other>[A-Za-z][A-Za-z0-9+.-]+):/",
    re.IGNORECASE,
)
