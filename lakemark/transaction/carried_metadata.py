"""Extra metadata that a commit copies from the commit before it.

Some facts about a table are stored in its commits alone: the schema, the bucket count, and how far
each streamer has read its source. A commit that does not change such a fact must repeat it.
Otherwise the fact would be lost once older commits are archived or cleaned by another engine.

Checkpoints are opaque texts here. ``checkpoints`` knows how those of Kafka are written.

Apache Hudi's streamer stores its checkpoint under one of two keys. Releases 1.0 to 1.2 write the
second key for Kafka sources, older and newer releases write the first. Their readers look for the
second key, then for the first. This project reads in the same order and writes the first. A commit
never carries both: a stale second key would win.
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

#: Apache Hudi's streamer records options of its command line here, so that it applies each once.
APPLIED_KEYS = frozenset({RESET_KEY, RESET_KEY_V2, IGNORE_KEY})

#: Facts about the table that only its commits store.
TABLE_KEYS = (keys.SCHEMA, keys.BUCKET_COUNT, keys.BUCKET_HASH_FIELDS)

#: ``topic,partition:offset,…``: the one form that means the same under either key.
_KAFKA_OFFSETS = re.compile(r"[^,]+(,\d+:\d+)+", re.ASCII)


def checkpoint_key(extra_metadata: Mapping[str, str]) -> str | None:
    """The key under which a commit stores its checkpoint; None if it stores no checkpoint."""
    return next((k for k in (CHECKPOINT_KEY_V2, CHECKPOINT_KEY) if k in extra_metadata), None)


def applied_options(extra_metadata: Mapping[str, str]) -> dict[str, str]:
    """Return options that Apache Hudi's streamer has applied, and must find in the next commit."""
    return {k: v for k, v in extra_metadata.items() if k in APPLIED_KEYS}


def carry_table_facts(extra_metadata: Mapping[str, str]) -> dict[str, str]:
    """Schema and buckets, for a commit that does not change them."""
    return {k: v for k, v in extra_metadata.items() if k in TABLE_KEYS}


def carry_progress(extra_metadata: Mapping[str, str]) -> dict[str, str]:
    """Checkpoints and progress of all streamers, for a commit that reads no source.

    A checkpoint of Kafka moves to the first key. Any other text stays under its own key, because
    Apache Hudi reads it differently under each.

    Args:
        extra_metadata: of the newest commit before.
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
