"""Translates when a job clusters its table, and how the rows of new files are sorted.

Source: ``HoodieClusteringConfig``, ``ClusteringPlanPartitionFilterMode`` and the classes of
``org.apache.hudi.client.clustering.plan.strategy`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Iterator

from streamer.config.clustering import ClusteringConfig
from streamer.migration.job import Job
from streamer.migration.outcome import Harmless, Missing, Outcome, Sets
from streamer.migration.rule import NotConvertible, shown, whole_number
from streamer.migration.running import kept_commits
from streamer.migration.table import fields_of

_PREFIX, _LAYOUT = "hoodie.clustering.", "hoodie.layout.optimize."
_PLAN = f"{_PREFIX}plan.strategy."
_INLINE, _ASYNC = f"{_PREFIX}inline", f"{_PREFIX}async.enabled"
_SCHEDULE, _SERVICES = f"{_PREFIX}schedule.inline", "hoodie.table.services.enabled"
_INLINE_COMMITS, _ASYNC_COMMITS = f"{_PREFIX}inline.max.commits", f"{_PREFIX}async.max.commits"
_CLASS, _MODE = f"{_PREFIX}plan.strategy.class", f"{_PREFIX}plan.partition.filter.mode"
_EXECUTION = f"{_PREFIX}execution.strategy.class"
_SORT, _CURVE = f"{_PLAN}sort.columns", f"{_LAYOUT}strategy"
_REGEX, _SELECTED = f"{_PLAN}partition.regex.pattern", f"{_PLAN}partition.selected"
_PARTITION = "hoodie.datasource.write.partitionpath.field"
_ROLLS_BACK = f"{_PREFIX}rollback.pending.replacecommit.on.conflict"

_NUMBERS = {
    f"{_PLAN}small.file.limit": "small_file_bytes",
    f"{_PLAN}target.file.max.bytes": "target_file_bytes",
    f"{_PLAN}max.bytes.per.group": "max_group_bytes",
    f"{_PLAN}max.num.groups": "max_groups",
}
_BY_SIZE = ("SparkSizeBasedClusteringPlanStrategy", "JavaSizeBasedClusteringPlanStrategy")
_SELECTING = "SparkSelectedPartitionsClusteringPlanStrategy"
_EXECUTIONS = ("SparkSortAndSizeExecutionStrategy", "JavaSortAndSizeExecutionStrategy")
_CURVES = {"LINEAR": "linear", "ZORDER": "z-order", "Z-ORDER": "z-order", "HILBERT": "hilbert"}


def convert_clustering(job: Job) -> Iterator[Outcome]:
    """Yield when the pipeline clusters its table, and how."""
    given = tuple(name for name in job.values if name.startswith((_PREFIX, _LAYOUT)))
    is_off = job.has(_SERVICES) and not job.is_set(_SERVICES)
    yield from _pending(job)
    given = tuple(name for name in given if name != _ROLLS_BACK)
    if is_off or not any(map(job.is_set, (_INLINE, _ASYNC, _SCHEDULE))):
        yield from _harmless(given, "the job does not cluster its table")
        return
    if job.get("hoodie.index.type").upper() == "BUCKET":
        yield from _of_buckets(job, given)
        return
    used: set[str] = set()
    for outcome in _clustering(job):
        used.update(outcome.names)
        yield outcome
    rest = tuple(name for name in given if name not in used)
    yield from _harmless(rest, "it sets how Apache Hudi plans or executes a clustering")


def _of_buckets(job: Job, given: tuple[str, ...]) -> Iterator[Outcome]:
    if job.get("hoodie.index.bucket.engine").upper() == "CONSISTENT_HASHING":
        yield from _harmless(given, "bucket_resizing splits and merges the buckets")
        return
    remedy = "a clustering would move the rows of a bucket to other file groups; leave it out"
    yield Missing(job.named(_INLINE, _ASYNC, _SCHEDULE), remedy)
    rest = tuple(name for name in given if name not in (_INLINE, _ASYNC, _SCHEDULE))
    yield from _harmless(rest, "it belongs to clustering")


def _clustering(job: Job) -> Iterator[Outcome]:
    names = job.named(_INLINE, _ASYNC, _SCHEDULE)
    is_inline = job.is_set(_INLINE)
    if not is_inline and not job.is_set(_ASYNC):
        remedy = "run lakemark table cluster --schedule; a pipeline executes what it plans"
        yield Missing(names, remedy)
        return
    yield Sets("clustering.enabled", True, names)
    yield Sets("clustering.mode", "inline" if is_inline else "background", ())
    yield from _after_commits(job, _INLINE_COMMITS if is_inline else _ASYNC_COMMITS)
    for name, setting in _NUMBERS.items():
        if job.has(name):
            yield from _number(job, name, setting)
    yield from _order(job)
    yield from _partitions(job)
    yield from _strategies(job)


def _after_commits(job: Job, name: str) -> Iterator[Outcome]:
    """Yield the number of commits; commits that were archived are not counted."""
    kept = kept_commits(job)
    if not job.has(name):
        if kept is not None and kept < ClusteringConfig().after_commits:
            comment = "Fewer than Apache Hudi's default, because so many commits stay active."
            yield Sets("clustering.after_commits", kept, (), comment)
        return
    try:
        commits = _positive(job.get(name))
    except NotConvertible as reason:
        yield Missing((name,), f"{shown(name, job.get(name))}: {reason}")
        return
    if kept is not None and commits > kept:
        remedy = f"{commits} is more than archival.min_commits, {kept}; raise both settings"
        yield Missing((name,), remedy)
        return
    yield Sets("clustering.after_commits", commits, (name,))


def _number(job: Job, name: str, setting: str) -> Iterator[Outcome]:
    try:
        yield Sets(f"clustering.{setting}", _positive(job.get(name)), (name,))
    except NotConvertible as reason:
        yield Missing((name,), f"{shown(name, job.get(name))}: {reason}")


def _order(job: Job) -> Iterator[Outcome]:
    columns = list(dict.fromkeys(fields_of(job, _SORT)))
    if not columns:
        return
    yield Sets("clustering.sort_by", columns, job.named(_SORT))
    given = job.get(_CURVE, "LINEAR").upper()
    if given not in _CURVES:
        yield Missing((_CURVE,), f"{shown(_CURVE, given)}: choose one of clustering.curve")
    elif _CURVES[given] != "linear" and len(columns) > 1:
        yield Sets("clustering.curve", _CURVES[given], job.named(_CURVE))


def _partitions(job: Job) -> Iterator[Outcome]:
    mode = job.get(_MODE, "NONE").upper()
    if mode != "NONE":
        remedy = "choose partitions with clustering.partitions"
        yield Missing((_MODE,), f"{shown(_MODE, mode)}: {remedy}")
    selected = fields_of(job, _SELECTED)
    if not fields_of(job, _PARTITION):
        yield from _harmless(job.named(_REGEX, _SELECTED), "the table is not partitioned")
    elif selected:
        yield Sets("clustering.partitions", list(selected), job.named(_SELECTED))
        yield from _harmless(job.named(_REGEX), f"{_SELECTED} replaces it")
    elif job.has(_REGEX):
        pattern = f"regex:^(?:{job.get(_REGEX)})$"
        yield Sets("clustering.partitions", [pattern], job.named(_REGEX))


def _strategies(job: Job) -> Iterator[Outcome]:
    for name, known in ((_CLASS, (*_BY_SIZE, _SELECTING)), (_EXECUTION, _EXECUTIONS)):
        simple = job.get(name).rpartition(".")[2]
        if simple and simple not in known:
            remedy = f"{shown(name, simple)}: choose files with the settings of clustering"
            yield Missing((name,), remedy)


def _pending(job: Job) -> Iterator[Outcome]:
    """Yield what happens to plans of other writers that prevent a batch.

    This does not depend on whether the job clusters its table.
    """
    if job.is_set(_ROLLS_BACK):
        yield Sets("clustering.pending", "remove", job.named(_ROLLS_BACK))
    else:
        yield from _harmless(job.named(_ROLLS_BACK), "it is the default")


def _positive(text: str) -> int:
    """Convert a number that is at least 1.

    Raises:
        NotConvertible: the text is no such number.
    """
    number = whole_number(text)
    if number < 1:
        message = "choose a number of at least 1"
        raise NotConvertible(message)
    return number


def _harmless(names: tuple[str, ...], reason: str) -> Iterator[Outcome]:
    if names:
        yield Harmless(names, reason)
