"""Extra metadata that a commit copies from the previous commit.

Some facts about a table are stored only in its commits: the schema, the bucket count, and how far
each streamer has read its source. A commit that does not change such a fact must repeat it.
Otherwise the fact would be lost when another engine archives or cleans the older commits.

This module treats checkpoints as opaque texts. ``checkpoints`` parses the checkpoints of Kafka.

Apache Hudi's streamer stores its checkpoint under one of two keys. Releases 1.0 to 1.2 write
``CHECKPOINT_KEY_V2`` for Kafka sources; older and newer releases write ``CHECKPOINT_KEY``. All
releases read ``CHECKPOINT_KEY_V2`` first. lakemark reads the keys in the same order, and writes
``CHECKPOINT_KEY``. No commit of lakemark carries both keys, because readers would prefer a stale
``CHECKPOINT_KEY_V2``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from lakemark.config import keys

CHECKPOINT_KEY = "deltastreamer.checkpoint.key"
CHECKPOINT_KEY_V2 = "streamer.checkpoint.key.v2"
RESET_KEY = "deltastreamer.checkpoint.reset_key"
RESET_KEY_V2 = "streamer.checkpoint.reset.key.v2"
IGNORE_KEY = "deltastreamer.checkpoint.ignore_key"

#: Apache Hudi's streamer stores command-line options under these keys, to apply each only once.
APPLIED_KEYS = frozenset({RESET_KEY, RESET_KEY_V2, IGNORE_KEY})

#: Keys of facts about the table that only its commits store.
TABLE_KEYS = (keys.SCHEMA, keys.BUCKET_COUNT, keys.BUCKET_HASH_FIELDS)

#: ``topic,partition:offset,…``, the only form that has the same meaning under both checkpoint keys.
_KAFKA_OFFSETS = re.compile(r"[^,]+(,\d+:\d+)+", re.ASCII)


def checkpoint_key(extra_metadata: Mapping[str, str]) -> str | None:
    """Return the key under which a commit stores its checkpoint; None without a checkpoint."""
    return next((k for k in (CHECKPOINT_KEY_V2, CHECKPOINT_KEY) if k in extra_metadata), None)


def applied_options(extra_metadata: Mapping[str, str]) -> dict[str, str]:
    """Return the options that Apache Hudi's streamer has applied. The next commit repeats them."""
    return {k: v for k, v in extra_metadata.items() if k in APPLIED_KEYS}


def carry_table_facts(extra_metadata: Mapping[str, str]) -> dict[str, str]:
    """Return the schema and the bucket settings, for a commit that does not change them."""
    return {k: v for k, v in extra_metadata.items() if k in TABLE_KEYS}


def carry_progress(extra_metadata: Mapping[str, str]) -> dict[str, str]:
    """Return the checkpoints and progress of all streamers, for a commit that reads no source.

    A checkpoint of Kafka is moved to ``CHECKPOINT_KEY``. A checkpoint of another source stays under
    the key that it has, because Apache Hudi interprets such a text differently under
    ``CHECKPOINT_KEY`` and under ``CHECKPOINT_KEY_V2``.

    Args:
        extra_metadata: the extra metadata of the newest previous commit.
    """
    carried = applied_options(extra_metadata)
    if keys.CHECKPOINTS in extra_metadata:
        carried[keys.CHECKPOINTS] = extra_metadata[keys.CHECKPOINTS]
    key = checkpoint_key(extra_metadata)
    if key is not None:
        text = extra_metadata[key]
        is_of_kafka = _KAFKA_OFFSETS.fullmatch(text) is not None
        carried[CHECKPOINT_KEY if is_of_kafka else key] = text
    return carried
