"""Computes the largest number of records of one poll.

The size of a fetch is limited, but in compressed bytes. A poll returns uncompressed records, and
the connector keeps the rest of a poll until the next batch, for each partition. So the limit is a
number of records, derived from the lengths of sampled records.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamer.sources.kafka_offsets import OffsetRange

#: The largest number of records of one poll. With fewer than a few hundred, requests take longer
#: than reading.
MAX_RECORDS = 10_000

#: The polls of all partitions may take this fraction of the heap. Records may be longer than the
#: sampled ones, and take up to twice their size in the regions of the heap. There they are not
#: moved, while arrays of tens of MiB (payloads of the shuffle) need contiguous memory: with an
#: eighth of 1 GiB for records of 1 MiB, the allocation failed.
_HEAP_PARTS = 32

#: Without a sampled record: Kafka's default.
_DEFAULT_RECORDS = 500

#: Memory of a record in addition to its key and value.
_RECORD_OVERHEAD_BYTES = 200

#: The number of sampled partitions, and of records before the end of each.
_SAMPLED_PARTITIONS = 16
_LAST_RECORDS = 10


def poll_records(heap_bytes: int, partitions: int, record_bytes: int) -> int:
    """Return the largest number of records of one poll.

    Args:
        heap_bytes: of the JVM with the consumers.
        partitions: number of partitions of the topic; each has its own consumer.
        record_bytes: uncompressed key and value of a long record; 0 if none was sampled.
    """
    if not record_bytes:
        return _DEFAULT_RECORDS
    share = heap_bytes // _HEAP_PARTS // max(partitions, 1)
    return max(1, min(MAX_RECORDS, share // (record_bytes + _RECORD_OVERHEAD_BYTES)))


def sample_offsets(
    start: Mapping[int, int], available: Mapping[int, OffsetRange]
) -> list[dict[int, int]]:
    """Choose the offsets to sample: at the start, half-way to the end, and at the end.

    Args:
        start: the offsets at which reading starts.
        available: the offsets of each partition.
    """
    held = [p for p in start if p in available and available[p].earliest < available[p].end]
    asked = held[:: -(-len(held) // _SAMPLED_PARTITIONS) or 1]
    last = {p: max(available[p].earliest, available[p].end - _LAST_RECORDS) for p in asked}
    first = {p: min(max(start[p], available[p].earliest), last[p]) for p in asked}
    return [first, {p: (first[p] + last[p]) // 2 for p in asked}, last] if asked else []
