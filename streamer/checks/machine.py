"""Checks of the machine that runs a pipeline: Java, Spark, its memory, the port of the metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from lakemark.execution.limits import usable_memory_bytes
from sinks.hudi.collect_budget import driver_budget_bytes
from streamer.checks.check import Check, Finding, NotChecked
from streamer.checks.sampled_sizes import SampledSizes
from streamer.config import settings
from streamer.config.pipeline import PipelineConfig
from streamer.metrics.endpoint import check_port
from streamer.spark_driver import DRIVER_MEMORY, given_driver_memory_bytes, is_submitted
from streamer.toolchain import downloaded_spark_kafka_jars, find_java, find_spark
from streamer.wording import counted, size_text

#: The largest part of the machine's memory that the heap should take, because batches, their
#: decoded rows and the merge of a file group are outside the heap.
_MAX_HEAP_SHARE: Final = 0.75

_DOWNLOAD = "python -m streamer.toolchain connector"


def machine_checks(config: PipelineConfig) -> Iterator[Check]:
    """Yield the checks of Java, Spark and the port of the metrics."""
    if not is_submitted():
        yield Check("Java", _check_java)
    yield Check("Spark", _check_spark)
    metrics = config.metrics
    if metrics.port is not None:
        host, port = metrics.host, metrics.port
        yield Check(f"metrics port {host}:{port}", lambda: _check_port(host, port))


def memory_check(config: PipelineConfig, sizes: SampledSizes, needs: tuple[str, ...]) -> Check:
    """Return the check that batches fit in memory.

    Args:
        config: the settings of the pipeline.
        sizes: the sizes of sampled records.
        needs: the name of the check that reads them.
    """
    return Check("memory for a batch", lambda: _check_memory(config, sizes), needs)


def _check_java() -> Finding:
    java = find_java()
    return Finding(f"version {java.version} in {java.home}")


def _check_spark() -> Finding:
    spark = find_spark()
    if is_submitted():
        return Finding(f"version {spark.version}, started by spark-submit")
    jars = downloaded_spark_kafka_jars()
    if jars is not None:
        folder = jars[0].parent
        return Finding(
            f"version {spark.version}, {counted(len(jars), 'connector jar')} in {folder}"
        )
    warning = (
        "the jars of the Kafka connector are not on this machine, so the first run downloads them "
        f"from Maven Central; to download them now: {_DOWNLOAD}"
    )
    return Finding(f"version {spark.version}", (warning,))


def _check_port(host: str, port: int) -> Finding:
    check_port(host, port)
    return Finding("free")


def _check_memory(config: PipelineConfig, sizes: SampledSizes) -> Finding:
    """Compare the heap with the memory of the machine, and a batch with its memory budget.

    Raises:
        NotChecked: the size of the heap or of the records is not known.
        ConfigError: a secret of ``spark.conf`` cannot be found.
    """
    machine_bytes = usable_memory_bytes()
    given = settings.resolve(config.spark.conf, "spark.conf").get(DRIVER_MEMORY)
    if is_submitted():
        message = "spark-submit sets the memory of the driver"
        raise NotChecked(message)
    heap_bytes = given_driver_memory_bytes(given)
    if heap_bytes is None:
        message = f"{DRIVER_MEMORY} {given!r} is not a size such as 4g"
        raise NotChecked(message)
    facts = f"{size_text(machine_bytes)}, of which {size_text(heap_bytes)} are the heap of Spark"
    warnings = tuple(_heap_warnings(heap_bytes, machine_bytes))
    budget_bytes = driver_budget_bytes(heap_bytes, machine_bytes)
    if sizes.mean_bytes is None:
        return Finding(f"{facts}; the topic has no record whose size could be read", warnings)
    records = min(config.kafka.max_records_per_batch, sizes.available)
    batch_bytes = records * sizes.mean_bytes
    facts += f"; a batch of {counted(records, 'record')} takes about {size_text(batch_bytes)}"
    return Finding(facts, (*warnings, *_batch_warnings(config, sizes, batch_bytes, budget_bytes)))


def _heap_warnings(heap_bytes: int, machine_bytes: int) -> Iterator[str]:
    if heap_bytes > _MAX_HEAP_SHARE * machine_bytes:
        yield (
            f"{DRIVER_MEMORY} leaves little memory outside the heap, where batches are decoded and "
            f"merged; lower it below {size_text(int(_MAX_HEAP_SHARE * machine_bytes))}, or use a "
            "larger machine"
        )


def _batch_warnings(
    config: PipelineConfig, sizes: SampledSizes, batch_bytes: int, budget_bytes: int
) -> Iterator[str]:
    """Yield a warning if a batch is not collected in the driver (``sinks.hudi.collect``)."""
    mean_bytes = sizes.mean_bytes or 1
    if batch_bytes > budget_bytes:
        fitting = max(1, budget_bytes // mean_bytes // 2)
        effect = (
            "so it fails, because this table looks up keys in the driver"
            if config.table.needs_lookup_index
            else "so it is moved through Spark's shuffle, which is slower"
        )
        yield (
            f"this is more than the {size_text(budget_bytes)} that the driver collects, {effect}; "
            f"set source.max_records_per_batch to {fitting:,} or less"
        )
