"""Translates the Kafka source of a job: the topic, the first offsets, and the consumer."""

from __future__ import annotations

import re
from collections.abc import Iterator

from streamer.config.kafka_source import RESERVED_PROPERTIES
from streamer.migration.job import Job
from streamer.migration.outcome import Harmless, Missing, Outcome, Sets
from streamer.migration.rule import NotConvertible, shown, whole_number
from streamer.migration.rules import find_rule
from streamer.migration.rules_of_source import CONSUMER
from streamer.migration.secrets import without_secret

_KAFKA = "hoodie.streamer.source.kafka."
_TOPIC, _BOOTSTRAP = f"{_KAFKA}topic", "bootstrap.servers"
_MAX_EVENTS = "hoodie.streamer.kafka.source.maxEvents"
_LOSS, _APPEND = f"{_KAFKA}enable.failOnDataLoss", f"{_KAFKA}append.offsets"
_COMMIT, _GROUP = f"{_KAFKA}enable.commit.offset", "group.id"
_IGNORED = f"{_KAFKA}ignore.prefix.config.list"
_RESET, _ISOLATION = "auto.offset.reset", "isolation.level"
_CHECKPOINT, _CHECKPOINT_TYPE = "--checkpoint", f"{_KAFKA}checkpoint.type"

_OFFSETS = re.compile(r"[^,]+((?:,\d+:\d+)+)")
_EPOCH = re.compile(r"\d{10}|\d{13}")
_LENGTH_OF_MS = 13

#: The columns of ``KafkaOffsetPostProcessor`` of Apache Hudi.
_METADATA_COLUMNS = ["offset", "partition", "timestamp", "key"]


def convert_source(job: Job) -> Iterator[Outcome]:
    """Yield what becomes of the Kafka source."""
    yield from _required(job, _BOOTSTRAP, "source.bootstrap_servers")
    yield from _required(job, _TOPIC, "source.topic")
    yield from _starting_offsets(job)
    yield from _batch_size(job)
    yield from _data_loss(job)
    yield from _isolation(job)
    yield from _group(job)
    yield from _metadata_columns(job)
    yield from _consumer(job)


def _required(job: Job, name: str, setting: str) -> Iterator[Outcome]:
    if job.has(name):
        yield Sets(setting, job.get(name), (name,))
    else:
        yield Missing((name,), "it is missing, but HoodieStreamer needs it; add it", True)


def _starting_offsets(job: Job) -> Iterator[Outcome]:
    setting = "source.starting_offsets"
    if job.has(_CHECKPOINT):
        names = job.named(_CHECKPOINT, _CHECKPOINT_TYPE, _RESET)
        try:
            offsets = _parse_checkpoint(job.get(_CHECKPOINT), job.get(_CHECKPOINT_TYPE, "string"))
        except NotConvertible as reason:
            yield Missing(names, f"{shown(_CHECKPOINT, job.get(_CHECKPOINT))}: {reason}", True)
        else:
            comment = (
                "Only for a table without a checkpoint. If the job has not yet applied this option "
                "to its table, run lakemark checkpoint set before the first run."
            )
            yield Sets(setting, offsets, names, comment)
        return
    yield from _unused(job, _CHECKPOINT_TYPE, "it belongs to --checkpoint")
    reset = job.get(_RESET, "latest").lower()
    comment = "Only for a table without a checkpoint."
    if not job.has(_RESET):
        yield Sets(setting, "latest", (), f"The default of HoodieStreamer. {comment}")
    elif reset in ("earliest", "latest"):
        yield Sets(setting, reset, (_RESET,), comment)
    else:
        remedy = (
            f"{shown(_RESET, reset)}: a pipeline starts at the checkpoint of the table; if the "
            "table has none, set source.starting_offsets to the offsets of the group"
        )
        yield Missing((_RESET,), remedy, True)


def _parse_checkpoint(text: str, kind: str) -> object:
    """Convert the value of ``--checkpoint`` to starting offsets.

    Raises:
        NotConvertible: the value does not have the form that ``checkpoint.type`` demands.
    """
    if kind == "timestamp" and _EPOCH.fullmatch(text):
        return {"timestamp": int(text) if len(text) == _LENGTH_OF_MS else int(text) * 1_000}
    if kind == "single_offset" and text.isdigit():
        return {0: int(text)}
    found = _OFFSETS.fullmatch(text)
    if found is None:
        message = "this is not topic,partition:offset,…; set source.starting_offsets"
        raise NotConvertible(message)
    pairs = (one.split(":") for one in found[1].lstrip(",").split(","))
    return {int(partition): int(offset) for partition, offset in pairs}


def _batch_size(job: Job) -> Iterator[Outcome]:
    limit, events = job.named("--source-limit"), job.named(_MAX_EVENTS)
    name = next(iter((*limit, *events)), None)
    if name is None:
        return
    try:
        yield Sets("source.max_records_per_batch", whole_number(job.get(name)), (name,))
    except NotConvertible as reason:
        yield Missing((name,), str(reason))
    if limit and events:
        yield Harmless(events, "HoodieStreamer uses --source-limit instead")


def _data_loss(job: Job) -> Iterator[Outcome]:
    setting = "source.on_offset_out_of_range"
    if job.is_set(_LOSS):
        yield Sets(setting, "fail", (_LOSS,))
    elif job.named(_LOSS):
        comment = "Only the partitions that lost records continue at their earliest record."
        yield Sets(setting, "earliest", (_LOSS,), comment)
    else:
        comment = (
            "HoodieStreamer continues at the earliest record of all partitions if one has lost "
            "records. To continue as well, write earliest."
        )
        yield Sets(setting, "fail", (), comment)


def _isolation(job: Job) -> Iterator[Outcome]:
    if job.has(_ISOLATION):
        yield Sets("source.isolation_level", job.get(_ISOLATION), (_ISOLATION,))
    else:
        comment = "HoodieStreamer also reads the records of aborted transactions."
        yield Sets("source.isolation_level", "read_committed", (), comment)


def _group(job: Job) -> Iterator[Outcome]:
    names = job.named(_COMMIT, _GROUP)
    if job.is_set(_COMMIT) and job.has(_GROUP):
        yield Sets("source.commit_group", job.get(_GROUP), names)
    elif names:
        reason = "the table records the offsets; the reader of a pipeline belongs to no group"
        yield Harmless(names, reason)


def _metadata_columns(job: Job) -> Iterator[Outcome]:
    if job.is_set(_APPEND):
        yield Sets("source.metadata_columns", _METADATA_COLUMNS, (_APPEND,))
        remedy = (
            "lakemark stores the timestamps and keys of Kafka with other types (timestamp and "
            "binary) than the job, so the pipeline does not continue the table; write a new table"
        )
        yield Missing((_APPEND,), remedy, True)
    else:
        yield from _unused(job, _APPEND, "no columns with offsets are added")


def _consumer(job: Job) -> Iterator[Outcome]:
    ignored = tuple(filter(None, job.get(_IGNORED).split(";")))
    for name, value in job.values.items():
        rule = find_rule(name)
        if rule is None or rule.effect is not CONSUMER or name in RESERVED_PROPERTIES:
            continue
        if name.startswith(ignored):
            yield Harmless((name,), f"{_IGNORED} excludes it")
        else:
            converted = without_secret("KAFKA", name, value)
            yield Sets(f"source.consumer.{name}", converted, (name,))
    yield from _unused(job, _IGNORED, "it excludes properties from Kafka's consumer")


def _unused(job: Job, name: str, reason: str) -> Iterator[Outcome]:
    if job.named(name):
        yield Harmless((name,), reason)
