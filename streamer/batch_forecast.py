"""What a pipeline knows about its next batch before it is read."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession

from lakemark.execution.limits import usable_cores
from sinks.hudi.exchange_plan import Cores
from sinks.hudi.sink import HudiSink
from streamer.executors import is_local
from streamer.sources.kafka import KafkaSource

#: The size of a record if none was sampled.
_DEFAULT_RECORD_BYTES = 500


@dataclass(frozen=True)
class PipelineForecast:
    """Derives the forecast from sampled records, the last batch, and the executors.

    Attributes:
        spark: the session.
        source: samples the lengths of records when the stream starts.
        sink: knows how many files the last batch has written.
    """

    spark: SparkSession
    source: KafkaSource
    sink: HudiSink

    def record_bytes(self) -> int:
        """See ``BatchForecast.record_bytes``."""
        return self.source.sampled_record_bytes or _DEFAULT_RECORD_BYTES

    def buckets(self) -> int:
        """See ``BatchForecast.buckets``."""
        return self.sink.expected_buckets

    def cores(self) -> Cores:
        """See ``BatchForecast.cores``. Spark reports the cores of the executors that it has now."""
        if is_local(self.spark):
            return Cores(driver=usable_cores(), cluster=0)
        return Cores(driver=usable_cores(), cluster=self.spark.sparkContext.defaultParallelism)
