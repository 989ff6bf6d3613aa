"""How many records a consumer may hold at once.

What a broker sends is limited by its size, but as it was sent: compressed. A poll hands its records
over uncompressed, and the connector keeps what is left of it until the next batch asks, of each
partition. So records are counted: as many as fit, as long as those that a look at the topic found.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamer.sources.kafka_offsets import OffsetRange

#: Records of one poll, at most: with fewer than some hundreds, asking takes longer than reading.
MOST_RECORDS = 10_000

#: What one divides the heap by for the polls of all partitions. Long records may be longer than
#: those that were looked at, and take up to twice their size in a heap of regions, where they stay
#: in place while arrays of tens of MiB (payloads of the shuffle) need room in one piece: with an
#: eighth of 1 GiB for records of 1 MiB there was none.
_HEAP_PARTS = 32

#: Where there is no record to look at: as many as Kafka itself would hand over.
_UNSEEN_RECORDS = 500

#: What a record costs beside its key and value.
_RECORD_OVERHEAD_BYTES = 200

#: Partitions that are looked into, and records before the end of each that are looked at.
_LOOKED_INTO = 16
_LAST_RECORDS = 10


def poll_records(heap_bytes: int, partitions: int, record_bytes: int) -> int:
    """Records that one poll may return.

    Args:
        heap_bytes: of the JVM in which the consumers are.
        partitions: of the topic, each with a consumer of its own.
        record_bytes: key and value of a long record, uncompressed; 0 where there is none.
    """
    if not record_bytes:
        return _UNSEEN_RECORDS
    share = heap_bytes // _HEAP_PARTS // max(partitions, 1)
    return max(1, min(MOST_RECORDS, share // (record_bytes + _RECORD_OVERHEAD_BYTES)))


def looks(start: Mapping[int, int], available: Mapping[int, OffsetRange]) -> list[dict[int, int]]:
    """Offsets to look at: where reading goes on, half-way from there to the end, and at the end.

    Args:
        start: where reading goes on.
        available: what each partition holds.
    """
    held = [p for p in start if p in available and available[p].earliest < available[p].end]
    asked = held[:: -(-len(held) // _LOOKED_INTO) or 1]
    last = {p: max(available[p].earliest, available[p].end - _LAST_RECORDS) for p in asked}
    first = {p: min(max(start[p], available[p].earliest), last[p]) for p in asked}
    return [first, {p: (first[p] + last[p]) // 2 for p in asked}, last] if asked else []
