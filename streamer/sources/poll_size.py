"""Computes the largest number of records of one poll.

The size of a fetch is limited, but the limit applies to compressed bytes. A poll returns
uncompressed records, and for each partition the connector keeps the unused records of a poll until
the next batch. So the limit of a poll is a number of records, which is derived from the lengths of
sampled records.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamer.sources.kafka_offsets import OffsetRange

#: The largest number of records of one poll. It must not be too small: with fewer than a few
#: hundred records, requests take longer than reading.
MAX_RECORDS = 10_000

#: The polls of all partitions together may take the heap divided by this number. The share is small
#: for two reasons. First, records may be longer than the sampled ones. Second, long records fill
#: whole regions of the heap (up to twice their size), which are not moved. But arrays of tens of
#: MiB (payloads of the shuffle) need contiguous memory. With an eighth of a heap of 1 GiB, records
#: of 1 MiB made such an allocation fail.
_HEAP_PARTS = 32

#: The limit if no record was sampled: Kafka's default.
_DEFAULT_RECORDS = 500

#: The memory that a record takes in addition to its key and value.
_RECORD_OVERHEAD_BYTES = 200

#: How many partitions are sampled, and how many records before the end of each.
_SAMPLED_PARTITIONS = 16
_LAST_RECORDS = 10


def poll_records(heap_bytes: int, partitions: int, record_bytes: int) -> int:
    """Return the largest number of records of one poll.

    Args:
        heap_bytes: the heap size of the JVM that runs the consumers.
        partitions: the number of partitions of the topic; each has its own consumer.
        record_bytes: the size of the uncompressed key and value of a long record; 0 if no record
            was sampled.
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
