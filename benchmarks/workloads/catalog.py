"""The workloads that the benchmark runs, by name."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.workloads.key_choice import KeyChoice
from benchmarks.workloads.row_shape import RowShape
from benchmarks.workloads.workload import Phase, Workload
from streamer.demo.order_stream import OrderMix

_UPSERTS = Workload(
    "five changes to each key in the mean, one record in twenty late",
    (Phase(1_000_000, 100_000),),
)

WORKLOADS = {
    "upserts_1m": _UPSERTS,
    "upserts_2m": replace(_UPSERTS, phases=(Phase(2_000_000, 200_000),)),
    "upserts_10m": replace(
        _UPSERTS,
        about="25 changes to each key in the mean, one record in twenty late",
        phases=(Phase(10_000_000, 200_000),),
    ),
    "insert_only": replace(
        _UPSERTS,
        about="each record has a new key, which the engines do not know",
        choice=KeyChoice.NEW,
        mix=OrderMix(late=0.0, repeated=0.0, deleted=0.0, tombstones=0.0, broken=0.0),
    ),
    "small_batches": replace(
        _UPSERTS,
        about="batches of 100 records, after one phase of large batches",
        phases=(Phase(400_000, 200_000), Phase(2_100, 100)),
        changes_per_key=1,
        is_small=True,
    ),
    "wide_rows": replace(
        _UPSERTS,
        about="rows of 100 columns, as JSON of about 2 kB",
        phases=(Phase(200_000, 20_000),),
        shape=RowShape(extra_columns=92),
    ),
    "skewed_keys": replace(
        _UPSERTS,
        about="the n-th key has 1/n times as many changes as the first (Zipf)",
        choice=KeyChoice.ZIPF,
    ),
    "partitions_200": replace(
        _UPSERTS,
        about="200 partitions of the table, each with one bucket",
        shape=RowShape(partitions=200),
        buckets=1,
    ),
    "deletes": replace(
        _UPSERTS,
        about="one record in ten deletes its row",
        mix=OrderMix(late=0.05, repeated=0.0, deleted=0.1, tombstones=0.0, broken=0.0),
    ),
    "avro": replace(_UPSERTS, about="values in Avro instead of JSON", is_avro=True),
}
