"""Translates how a job runs: table services, bad records, metrics and the loop."""

from __future__ import annotations

from collections.abc import Iterator

from streamer.config.archival import ArchivalConfig
from streamer.config.cleaning import CleaningConfig
from streamer.config.run import RetryConfig
from streamer.migration.job import Job
from streamer.migration.outcome import Harmless, Missing, Outcome, Sets
from streamer.migration.rule import NotConvertible, shown, whole_number
from streamer.migration.writers import convert_writers

_DISABLED, _CONTINUOUS = "--disable-compaction", "--continuous"
_INTERVAL, _STOP = "--min-sync-interval-seconds", "--post-write-termination-strategy-class"
_SERVICES = "hoodie.table.services.enabled"
_CLEANS, _ARCHIVES = "hoodie.clean.automatic", "hoodie.archive.automatic"
_RETAINED = "hoodie.clean.commits.retained"
_MIN_KEPT, _MAX_KEPT = "hoodie.keep.min.commits", "hoodie.keep.max.commits"
_RETRIES = ("--retry-on-source-failures", "--retry-interval-seconds", "--max-retry-count")

_TTL = "hoodie.partition.ttl."
_TTL_ON, _TTL_DAYS = f"{_TTL}inline", f"{_TTL}strategy.days.retain"
_TTL_TYPE, _TTL_CLASS = f"{_TTL}management.strategy.type", f"{_TTL}strategy.class"
_TTL_CHOSEN = f"{_TTL}strategy.partition.selected"
#: The lifetime in days without a setting: partitions do not expire.
_FOREVER = -1
_NOTHING_EXPIRES = "partitions do not expire"
_TTL_BY = {"KEEP_BY_TIME": "commit", "KEEP_BY_CREATION_TIME": "creation"}

_ERRORS, _SKIPS = "--commit-on-errors", "hoodie.streamer.source.json.skip.invalid.records"
_ERROR_TABLE = "hoodie.errortable.enable"
_METRICS, _REPORTER = "hoodie.metrics.on", "hoodie.metrics.reporter.type"
_PORT = "hoodie.metrics.prometheus.port"
_DEFAULT_PORT = 9_090
_NO_NEW_DATA = "NoNewDataTerminationStrategy"


def convert_run(job: Job) -> Iterator[Outcome]:
    """Yield what becomes of the services, the other writers, and the loop of the job."""
    yield from _compaction(job)
    yield from _service(job, _CLEANS, "cleaning.enabled")
    yield from _service(job, _ARCHIVES, "archival.enabled")
    yield from _kept_commits(job)
    yield from _lifetime(job)
    yield from convert_writers(job)
    yield from _bad_records(job)
    yield from _loop(job)
    yield from _retries(job)
    yield from _metrics(job)
    for name, setting in (("--spark-master", "spark.master"), ("--spark-app-name", "name")):
        if job.has(name):
            yield Sets(setting, job.get(name), (name,))
        else:
            yield from _harmless(job.named(name), "it is empty")


def _compaction(job: Job) -> Iterator[Outcome]:
    names = job.named(_DISABLED, _SERVICES)
    if not job.is_merge_on_read:
        yield from _harmless(job.named(_DISABLED), "the table has no logs to compact")
    elif job.is_set(_DISABLED) or _is_false(job, _SERVICES):
        yield Sets("compaction.enabled", False, names)
    elif job.is_set(_CONTINUOUS):
        comment = "As with --continuous, the table is compacted while batches are written."
        yield Sets("compaction.mode", "async", job.named(_CONTINUOUS), comment)
    if not _is_false(job, _SERVICES):
        yield from _harmless(job.named(_SERVICES), "a pipeline runs its table services")


def _service(job: Job, name: str, setting: str) -> Iterator[Outcome]:
    if _is_false(job, name) or _is_false(job, _SERVICES):
        yield Sets(setting, False, job.named(name, _SERVICES))
    else:
        yield from _harmless(job.named(name), f"it is the default of {setting}")


def _kept_commits(job: Job) -> Iterator[Outcome]:
    """Yield how many commits stay active: always more than cleaning retains."""
    names = job.named(_MIN_KEPT, _MAX_KEPT)
    defaults = ArchivalConfig()
    try:
        retained = whole_number(job.get(_RETAINED, str(CleaningConfig().commits_retained)))
        least = whole_number(job.get(_MIN_KEPT, str(defaults.min_commits)))
        most = whole_number(job.get(_MAX_KEPT, str(defaults.max_commits)))
    except NotConvertible as reason:
        yield from (Missing((name,), str(reason)) for name in names)
        return
    comment = ""
    if least <= retained or most <= least:
        least = max(least, retained + defaults.max_commits - defaults.min_commits)
        most = max(most, least + defaults.max_commits - defaults.min_commits)
        comment = "More commits than the job named, because cleaning retains so many."
    elif not names:
        return
    yield Sets("archival.min_commits", least, job.named(_MIN_KEPT), comment)
    yield Sets("archival.max_commits", most, job.named(_MAX_KEPT))


def kept_commits(job: Job) -> int | None:
    """Return how many commits the pipeline keeps active; None if it archives none."""
    if _is_false(job, _ARCHIVES) or _is_false(job, _SERVICES):
        return None
    kept = ArchivalConfig().min_commits
    for outcome in _kept_commits(job):
        if isinstance(outcome, Sets) and outcome.path == "archival.min_commits":
            assert isinstance(outcome.value, int)
            kept = outcome.value
    return kept


def _lifetime(job: Job) -> Iterator[Outcome]:
    names = job.named(_TTL_ON, _TTL_DAYS, _TTL_TYPE, _TTL_CLASS, _TTL_CHOSEN)
    others = tuple(one for one in job.values if one.startswith(_TTL) and one not in names)
    if _is_false(job, _SERVICES) or not job.is_set(_TTL_ON):
        yield from _harmless((*names, *others), _NOTHING_EXPIRES)
        return
    try:
        days = whole_number(job.get(_TTL_DAYS, f"{_FOREVER}"))
    except NotConvertible as reason:
        yield Missing((_TTL_DAYS,), str(reason), True)
        return
    by = _TTL_BY.get(job.get(_TTL_TYPE, "KEEP_BY_TIME").upper())
    if by is None or job.has(_TTL_CLASS) or job.has(_TTL_CHOSEN):
        remedy = "run lakemark table expire-partitions, or delete-partitions with a pattern"
        yield Missing(names, remedy, True)
        return
    if days <= 0:
        yield from _harmless((*names, *others), _NOTHING_EXPIRES)
        return
    yield Sets("partition_lifetime.days", days, names)
    if by != "commit":
        yield Sets("partition_lifetime.by", by, (_TTL_TYPE,))
    yield from _harmless(others, "each check deletes all partitions whose lifetime has ended")


def _bad_records(job: Job) -> Iterator[Outcome]:
    names = job.named(_ERRORS, _SKIPS, _ERROR_TABLE)
    if job.is_set(_ERRORS) or job.is_set(_SKIPS):
        comment = "The job continued after any number of records that it could not write."
        yield Sets("dead_letters.max_share", 1.0, names, comment)
    elif job.is_set(_ERROR_TABLE):
        comment = "The dead-letter table replaces the error table."
        yield Sets("dead_letters.enabled", True, names, comment)
    else:
        comment = (
            "HoodieStreamer stops at the first record that it cannot write. To stop as well, write "
            "false."
        )
        yield Sets("dead_letters.enabled", True, (), comment)
        yield from _harmless(names, "no record is skipped without a trace")


def _loop(job: Job) -> Iterator[Outcome]:
    strategy = job.get(_STOP).rpartition(".")[2]
    names = job.named(_CONTINUOUS, _STOP)
    if not job.is_set(_CONTINUOUS):
        yield Sets("run.mode", "once", (), "Without --continuous, the job ended after one round.")
        yield from _harmless(job.named(_INTERVAL, _STOP), "it belongs to --continuous")
        return
    if strategy == _NO_NEW_DATA:
        yield Sets("run.mode", "once", names, "The job ended when no more records arrived.")
    else:
        yield Sets("run.mode", "continuous", job.named(_CONTINUOUS))
        if strategy:
            remedy = "stop the pipeline from outside, with SIGTERM"
            yield Missing((_STOP,), f"{shown(_STOP, strategy)}: {remedy}")
        else:
            yield from _harmless(job.named(_STOP), "it is empty")
    if job.has(_INTERVAL):
        try:
            yield Sets("run.trigger_interval_s", whole_number(job.get(_INTERVAL)), (_INTERVAL,))
        except NotConvertible as reason:
            yield Missing((_INTERVAL,), str(reason))


def _retries(job: Job) -> Iterator[Outcome]:
    names = job.named(*_RETRIES)
    if not job.is_set(_RETRIES[0]):
        yield from _harmless(names, "a pipeline always retries; see run.retry")
        return
    try:
        attempts = whole_number(job.get(_RETRIES[2], "3"))
        pause = whole_number(job.get(_RETRIES[1], "30"))
    except NotConvertible as reason:
        yield Missing(names, str(reason))
        return
    yield Sets("run.retry.max_attempts", max(1, attempts), names)
    yield Sets("run.retry.backoff_s", pause, names)
    if pause > RetryConfig().max_backoff_s:
        yield Sets("run.retry.max_backoff_s", pause, names)


def _metrics(job: Job) -> Iterator[Outcome]:
    names = job.named(_METRICS, _REPORTER, _PORT)
    if not job.is_set(_METRICS):
        yield from _harmless(names, "the job reports no metrics")
        return
    reporter = job.get(_REPORTER, "GRAPHITE").upper()
    if reporter != "PROMETHEUS":
        remedy = "set metrics.port, and let Prometheus or its agent collect the metrics"
        yield Missing(names, f"{shown(_REPORTER, reporter)}: {remedy}")
        return
    try:
        yield Sets("metrics.port", whole_number(job.get(_PORT, str(_DEFAULT_PORT))), names)
    except NotConvertible as reason:
        yield Missing(names, str(reason))
        return
    yield Sets(
        "metrics.host", "0.0.0.0", (), "The metrics have other names; see the documentation."
    )


def _is_false(job: Job, name: str) -> bool:
    return job.has(name) and not job.is_set(name)


def _harmless(names: tuple[str, ...], reason: str) -> Iterator[Outcome]:
    if names:
        yield Harmless(names, reason)
