"""Translates how the writers of the job's table exclude each other: their mode and their lock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lakemark.timeline.locks.options import hash_of_path, implicit_node
from streamer.migration.job import TARGET_PATH, TARGET_TABLE, Job
from streamer.migration.outcome import Harmless, Missing, Outcome, Sets
from streamer.migration.rule import NotConvertible, shown, whole_number

_MODE, _LOCK = "hoodie.write.concurrency.mode", "hoodie.write.lock.provider"
_MODES = {
    "SINGLE_WRITER": "single_writer",
    "OPTIMISTIC_CONCURRENCY_CONTROL": "multi_writer",
    "NON_BLOCKING_CONCURRENCY_CONTROL": "non_blocking",
}
_EARLY = "hoodie.write.concurrency.early.conflict.detection.enable"
_OF_CLIENT = "org.apache.hudi.client.transaction.lock."
_OF_AWS = "org.apache.hudi.aws.transaction.lock."

_ZOOKEEPER, _DYNAMODB = "hoodie.write.lock.zookeeper.", "hoodie.write.lock.dynamodb."
_URL, _BASE_PATH, _LOCK_KEY = (f"{_ZOOKEEPER}{name}" for name in ("url", "base_path", "lock_key"))
_SESSION_MS = f"{_ZOOKEEPER}session_timeout_ms"
_TABLE, _PARTITION_KEY = f"{_DYNAMODB}table", f"{_DYNAMODB}partition_key"
_REGION, _ENDPOINT = f"{_DYNAMODB}region", f"{_DYNAMODB}endpoint_url"
_OPTIONS = "concurrency.lock.options"


@dataclass(frozen=True, slots=True)
class _Lock:
    """A lock provider of Apache Hudi.

    Attributes:
        provider: lakemark's provider of the same lock.
        is_implicit: whether the lock is named after the path of the table.
    """

    provider: str
    is_implicit: bool = False


_LOCKS = {
    f"{_OF_CLIENT}StorageBasedLockProvider": _Lock("storage"),
    f"{_OF_CLIENT}FileSystemBasedLockProvider": _Lock("file_system"),
    f"{_OF_CLIENT}InProcessLockProvider": _Lock("in_process"),
    f"{_OF_CLIENT}ZookeeperBasedLockProvider": _Lock("zookeeper"),
    f"{_OF_CLIENT}ZookeeperBasedImplicitBasePathLockProvider": _Lock("zookeeper", True),
    f"{_OF_AWS}DynamoDBBasedLockProvider": _Lock("dynamodb"),
    f"{_OF_AWS}DynamoDBBasedImplicitPartitionKeyLockProvider": _Lock("dynamodb", True),
}


def convert_writers(job: Job) -> Iterator[Outcome]:
    """Yield what becomes of the mode of the writers, and of their lock."""
    given, names = job.get(_MODE, "SINGLE_WRITER").upper(), job.named(_MODE)
    lock, mode = _LOCKS.get(job.get(_LOCK)), _MODES.get(given)
    shares = mode != "single_writer"
    if mode is None:
        remedy = f"{shown(_MODE, given)}: use one of {', '.join(_MODES)} in all writers"
        yield Missing(names, remedy, True)
    if shares and lock is not None and lock.provider == "in_process":
        comment = (
            "The lock of the job excluded only writers in its own process, so the pipeline is the "
            "only writer of the table."
        )
        yield Sets("concurrency.mode", "single_writer", (*names, _LOCK), comment)
        yield from _early_detection(job, conflicts=False)
        yield from _unused_options(job, None)
        return
    if shares:
        yield Sets("concurrency.mode", mode or "multi_writer", names)
    else:
        yield from _harmless(names, "it is the default of concurrency.mode")
    yield from _early_detection(job, conflicts=shares and mode != "non_blocking")
    yield from _lock(job, lock, shares=shares)


def _early_detection(job: Job, *, conflicts: bool) -> Iterator[Outcome]:
    if conflicts and job.is_set(_EARLY):
        yield Sets("concurrency.early_conflict_detection", True, (_EARLY,))
    else:
        yield from _harmless(
            job.named(_EARLY), "commits do not conflict, or are checked when they complete"
        )


def _lock(job: Job, lock: _Lock | None, *, shares: bool) -> Iterator[Outcome]:
    """Yield what becomes of the lock provider and its options."""
    has_options = lock is not None and lock.provider in ("zookeeper", "dynamodb")
    if lock is not None and (shares or not has_options):
        yield Sets("concurrency.lock.provider", lock.provider, (_LOCK,))
    elif job.has(_LOCK) and shares:
        remedy = (
            f"{shown(_LOCK, job.get(_LOCK))}: let all writers of the table use "
            "StorageBasedLockProvider, and set concurrency.lock.provider: storage"
        )
        yield Missing((_LOCK,), remedy, True)
    else:
        yield from _harmless(job.named(_LOCK), "the pipeline is the only writer")
    used = lock if shares else None
    if used is not None and used.provider == "zookeeper":
        yield from _zookeeper_options(job, used)
    if used is not None and used.provider == "dynamodb":
        yield from _dynamodb_options(job, used)
    yield from _unused_options(job, used)


def _zookeeper_options(job: Job, lock: _Lock) -> Iterator[Outcome]:
    yield from _required(job, _URL, "hosts")
    if lock.is_implicit:
        base_path, lock_key = implicit_node(job.get(TARGET_PATH))
        yield Sets(f"{_OPTIONS}.base_path", base_path, (_LOCK,), _hashed(TARGET_PATH))
        yield Sets(f"{_OPTIONS}.lock_key", lock_key, (_LOCK,))
        unused = job.named(_BASE_PATH, _LOCK_KEY)
        yield from _harmless(unused, "the lock is named after the path of the table")
    else:
        yield from _required(job, _BASE_PATH, "base_path")
        key = job.get(_LOCK_KEY) or job.get(TARGET_TABLE)
        yield Sets(f"{_OPTIONS}.lock_key", key, job.named(_LOCK_KEY))
    if job.has(_SESSION_MS):
        try:
            seconds = float(whole_number(job.get(_SESSION_MS))) / 1000
        except NotConvertible as reason:
            yield Missing((_SESSION_MS,), str(reason))
        else:
            yield Sets(f"{_OPTIONS}.session_timeout_s", seconds, (_SESSION_MS,))


def _dynamodb_options(job: Job, lock: _Lock) -> Iterator[Outcome]:
    yield from _required(job, _TABLE, "table")
    setting = f"{_OPTIONS}.partition_key"
    if lock.is_implicit:
        key = hash_of_path(job.get(TARGET_PATH))
        yield Sets(setting, key, (_LOCK,), _hashed(TARGET_PATH))
        unused = job.named(_PARTITION_KEY)
        yield from _harmless(unused, "the lock is named after the path of the table")
    else:
        key = job.get(_PARTITION_KEY) or job.get(TARGET_TABLE)
        yield Sets(setting, key, job.named(_PARTITION_KEY))
    for name, option in ((_REGION, "region"), (_ENDPOINT, "endpoint_url")):
        if job.has(name):
            yield Sets(f"{_OPTIONS}.{option}", job.get(name), (name,))


def _required(job: Job, name: str, option: str) -> Iterator[Outcome]:
    if job.has(name):
        yield Sets(f"{_OPTIONS}.{option}", job.get(name), (name,))
    else:
        remedy = f"set {_OPTIONS}.{option} to its value in the other writers of the table"
        yield Missing((name,), remedy, True)


def _unused_options(job: Job, lock: _Lock | None) -> Iterator[Outcome]:
    """Yield the options of the providers that the pipeline does not use."""
    for provider, names in (
        ("zookeeper", (_URL, _BASE_PATH, _LOCK_KEY, _SESSION_MS)),
        ("dynamodb", (_TABLE, _PARTITION_KEY, _REGION, _ENDPOINT)),
    ):
        if lock is None or lock.provider != provider:
            yield from _harmless(job.named(*names), f"the pipeline has no lock in {provider}")


def _hashed(name: str) -> str:
    return f"The job derived it from {name}, as its other writers must."


def _harmless(names: tuple[str, ...], reason: str) -> Iterator[Outcome]:
    if names:
        yield Harmless(names, reason)
