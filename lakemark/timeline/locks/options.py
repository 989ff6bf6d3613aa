"""The options of a lock provider: texts by name, as a pipeline file or a program passes them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from xxhash import xxh64_hexdigest

from lakemark.errors import InvalidConfig

#: 0xDABADABA as a Java int, which is negative (``HashID`` of Apache Hudi).
_SEED = -625288518

#: The options that name a lock of ZooKeeper or DynamoDB.
_NAMING = ("base_path", "lock_key", "partition_key")

#: The options that say where the locks of a provider are. Two tables must not agree in all.
_PLACES = {
    "zookeeper": ("hosts", "base_path", "lock_key"),
    "dynamodb": ("endpoint_url", "region", "table", "partition_key"),
}


def check_options(
    provider: str,
    options: Mapping[str, str],
    required: Collection[str] = (),
    optional: Collection[str] = (),
) -> None:
    """Check the names of the options.

    Args:
        provider: the name of the provider, for the error.
        options: the options.
        required: the names that must be given.
        optional: the names that may be given.

    Raises:
        InvalidConfig: a required option is missing or empty, or an option has an unknown name.
    """
    known = sorted({*required, *optional})
    unknown = sorted(set(options).difference(known))
    if unknown:
        accepted = f"it accepts {', '.join(known)}" if known else "it accepts no options"
        message = f"lock provider {provider} has no option {unknown[0]!r}; {accepted}"
        raise InvalidConfig(message)
    missing = [name for name in required if not options.get(name)]
    if missing:
        message = f"lock provider {provider} needs the option {missing[0]!r}"
        raise InvalidConfig(message)


def given_name(provider: str, options: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return what names the lock, to compare the locks of two tables.

    Returns:
        None if the lock is named after the path of its table, or if the provider is none of
        lakemark's, so that it may add the path to the name.
    """
    if provider not in _PLACES or not any(options.get(name) for name in _NAMING):
        return None
    return (provider, *(options.get(name, "") for name in _PLACES[provider]))


def without_name(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options without those that name the lock.

    Then the lock is named after the path of its table. A pipeline's options name the lock of the
    table, and its dead-letter table needs another one.
    """
    return {name: text for name, text in options.items() if name not in _NAMING}


def implicit_node(path: str) -> tuple[str, str]:
    """Return ``base_path`` and ``lock_key`` of ``ZookeeperBasedImplicitBasePathLockProvider``.

    Args:
        path: the path of the table; see ``hash_of_path``.
    """
    return f"/tmp/{hash_of_path(path)}", "lock_key"


def hash_of_path(path: str) -> str:
    """Return the name by which Apache Hudi's implicit providers tell the locks of tables apart.

    It is the hash of the text of ``hoodie.base.path``. So all writers of a table must write its
    path in the same way; ``s3a://`` and ``s3://`` have one hash. Sources:
    ``ZookeeperBasedImplicitBasePathLockProvider`` and
    ``DynamoDBBasedImplicitPartitionKeyLockProvider``.
    """
    if path.startswith("s3a://"):
        path = "s3://" + path.removeprefix("s3a://")
    return xxh64_hexdigest(path.encode(), _SEED).upper()
